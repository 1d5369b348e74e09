package config

import (
	"strings"
	"testing"
	"time"
)

func TestOrganization(t *testing.T) {
	usual := Default().AWS.Organization
	if usual.Role != "" || usual.Refresh != time.Hour {
		t.Errorf("the default is %+v", usual)
	}
	for text, says := range map[string]string{
		"role: curfew-read": "",
		"{role: ops/curfew-read, list_role: 'arn:aws:iam::111122223333:role/list', regions: [us-east-1], exclude: ['444455556666'], refresh: 30m}": "",
		"role: 'arn:aws:iam::111122223333:role/curfew-read'": "aws.organization.role",
		"role: 'a b'": "aws.organization.role",
		"list_role: 'arn:aws:iam::111122223333:role/list'": "it needs the role",
		"exclude: ['444455556666']":                        "it needs the role",
		"{role: r, exclude: ['4444']}":                     "twelve digits",
		"{role: r, list_role: list}":                       "the ARN of a role",
		"{role: r, refresh: 0s}":                           "refresh",
		"{role: r, refesh: 1h}":                            "refresh",
	} {
		c := Default()
		err := Decode("curfew.yaml", []byte("aws:\n  organization: "+brace(text)+"\n"), &c)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

func brace(text string) string { return "{" + strings.Trim(text, "{}") + "}" }
