package action

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/curfew-dev/curfew/internal/usage"
)

// hidden stands where a secret stood.
const hidden = "[redacted]"

// secret is a shape of what must not be written down, and what is put in its place:
// what its first group holds, if it has one, stays.
type secret struct {
	*regexp.Regexp
	put string
	// signs are texts in small letters, one of which is in whatever the shape matches.
	// Looking for them costs a small part of what the expression does.
	signs []string
}

func shape(expression string, signs ...string) secret {
	s := secret{regexp.MustCompile(expression), hidden, signs}
	if s.NumSubexp() > 0 {
		s.put = "${1}" + hidden
	}
	if strings.HasSuffix(expression, "@") {
		s.put += "@"
	}
	return s
}

// secrets are compiled when the first text is redacted.
var secrets = sync.OnceValue(func() []secret {
	return []secret{
		// A PEM block, to its end or that of the text.
		shape(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`, "-----begin"),
		// User and password of a URL: postgres://curfew:secret@host.
		shape(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@"'<>]+@`, "://"),
		// The path of an incoming webhook is its password.
		shape(`(hooks\.slack\.com/)[^\s"'<>]+`, "hooks.slack.com/"),
		// Header values: Authorization: Bearer …, x-api-key: …, Cookie: ….
		shape(`(?i)((?:proxy-)?authorization["']?\s*[:=]\s*["']?)[^\r\n"',;]+`, "authorization"),
		shape(`(?i)(\b(?:set-)?cookie\s*:\s*)[^\r\n"']+`, "cookie"),
		shape(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`, "bearer", "basic"),
		// name=value and "name": "value" where the name says what the value is.
		shape(
			`(?i)([a-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|credential|signature|api[_-]?key|access[_-]?key|private[_-]?key)[a-z0-9_.-]*["']?\s*[:=]\s*)(?:"[^"]*"|'[^']*'|[^\s"'&,;<>]+)`,
			"passw", "passphrase", "secret", "token", "credential", "signature", "key"),
		// Keys that show by their beginning whose they are: curfew, AWS, Slack, GitHub, GitLab,
		// and others in that manner; JSON web tokens.
		shape(`\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b`, "akia", "asia", "aroa", "aida"),
		shape(`\b(?:xox[a-z]|xapp)-[A-Za-z0-9-]{8,}`, "xox", "xapp-"),
		shape(`\b(?:gh[a-z]_|github_pat_|glpat-|hf_|curfew_|sk-|sk_live_|AIza)[A-Za-z0-9_-]{12,}`, "gh", "github_pat_",
			"glpat-", "hf_", "curfew_", "sk-", "sk_live_", "aiza"),
		shape(`\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`, "eyj"),
	}
})

// Redact returns a text without what looks like a secret: passwords in URLs, values
// of headers and of names such as token or password, and keys that are known by
// their shape. It is applied to everything that is recorded.
func Redact(s string) string {
	small := strings.ReplaceAll(strings.ToLower(s), "ſ", "s") // expressions take a long s for one, too
	for _, x := range secrets() {
		if slices.ContainsFunc(x.signs, func(sign string) bool { return strings.Contains(small, sign) }) {
			s = x.ReplaceAllString(s, x.put)
		}
	}
	// The secret access key of AWS, which nothing introduces: 40 signs in a row.
	for from := 0; from < len(s); {
		to := from
		for to < len(s) && inBase64(s[to]) {
			to++
		}
		if to-from == 40 && mixed(s[from:to]) {
			s, to = s[:from]+hidden+s[to:], from+len(hidden)
		}
		from = to + 1
	}
	return s
}

// inBase64 says whether a byte is a sign of that code.
func inBase64(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '/' || c == '+'
}

// mixed says whether a text has capitals, small letters and digits, as keys have and
// hexadecimal digests have not.
func mixed(v string) bool {
	return strings.ContainsFunc(v, unicode.IsUpper) && strings.ContainsFunc(v, unicode.IsLower) &&
		strings.ContainsFunc(v, unicode.IsDigit)
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
