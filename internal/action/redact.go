package action

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/curfew-dev/curfew/internal/usage"
)

// hidden stands where a secret stood.
const hidden = "[redacted]"

// secrets are shapes of what must not be written down; what the first group of each
// holds, if it has one, stays.
var secrets = []*regexp.Regexp{
	// A PEM block, to its end or that of the text.
	regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`),
	// User and password of a URL: postgres://curfew:secret@host.
	regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@"'<>]+@`),
	// The path of an incoming webhook is its password.
	regexp.MustCompile(`(hooks\.slack\.com/)[^\s"'<>]+`),
	// Header values: Authorization: Bearer …, x-api-key: …, Cookie: ….
	regexp.MustCompile(`(?i)((?:proxy-)?authorization["']?\s*[:=]\s*["']?)[^\r\n"',;]+`),
	regexp.MustCompile(`(?i)(\b(?:set-)?cookie\s*:\s*)[^\r\n"']+`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`),
	// name=value and "name": "value" where the name says what the value is.
	regexp.MustCompile(`(?i)([a-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|credential|signature|api[_-]?key|access[_-]?key|private[_-]?key)[a-z0-9_.-]*["']?\s*[:=]\s*)(?:"[^"]*"|'[^']*'|[^\s"'&,;<>]+)`),
	// Keys that show by their beginning whose they are: AWS, Slack, GitHub, GitLab,
	// and others in that manner; JSON web tokens.
	regexp.MustCompile(`\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b`),
	regexp.MustCompile(`\b(?:xox[a-z]|xapp)-[A-Za-z0-9-]{8,}`),
	regexp.MustCompile(`\b(?:gh[a-z]_|github_pat_|glpat-|hf_|sk-|sk_live_|AIza)[A-Za-z0-9_-]{12,}`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`),
}

// secretKey is the shape of a secret access key of AWS, which nothing introduces.
var secretKey = regexp.MustCompile(`[A-Za-z0-9/+]{40,}`)

// Redact returns a text without what looks like a secret: passwords in URLs, values
// of headers and of names such as token or password, and keys that are known by
// their shape. It is applied to everything that is recorded.
func Redact(s string) string {
	for _, re := range secrets {
		keep := hidden
		if re.NumSubexp() > 0 {
			keep = "${1}" + hidden
		}
		if strings.HasSuffix(re.String(), "@") {
			keep += "@"
		}
		s = re.ReplaceAllString(s, keep)
	}
	return secretKey.ReplaceAllStringFunc(s, func(v string) string {
		if len(v) == 40 && mixed(v) {
			return hidden
		}
		return v
	})
}

// mixed says whether a text has capitals, small letters and digits, as keys have and
// hexadecimal digests have not.
func mixed(v string) bool {
	return strings.ContainsFunc(v, unicode.IsUpper) && strings.ContainsFunc(v, unicode.IsLower) && strings.ContainsFunc(v, unicode.IsDigit)
}

// redacted returns an entry that can be written down.
func (e Entry) redacted() Entry {
	e.Because, e.Outcome, e.Evidence = Redact(e.Because), Redact(e.Outcome), redactAll(e.Evidence)
	return e
}

// redactAll returns evidence that can be shown; what it is given stays as it is.
func redactAll(evidence []usage.Evidence) []usage.Evidence {
	out := slices.Clone(evidence)
	for i := range out {
		out[i].Value = Redact(out[i].Value)
	}
	return out
}
