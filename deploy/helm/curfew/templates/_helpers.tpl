{{- define "curfew.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "curfew.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "curfew.labels" -}}
{{ include "curfew.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "curfew.account" -}}
{{ .Values.serviceAccount.name | default (ternary (include "curfew.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "curfew.claim" -}}
{{ .Values.persistence.existingClaim | default (include "curfew.name" .) }}
{{- end }}
