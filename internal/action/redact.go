package action

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/curfew-dev/curfew/internal/usage"
)

// redactedText replaces a secret.
const redactedText = "[redacted]"

// secretPattern is a pattern of secrets and its replacement; the first group of the pattern, if
// any, is kept.
type secretPattern struct {
	*regexp.Regexp
	replacement string
	// hints are lower-case texts, one of which is in every match. Searching for them first is much
	// cheaper than the expression.
	hints []string
}

func newPattern(expression string, signs ...string) secretPattern {
	s := secretPattern{regexp.MustCompile(expression), redactedText, signs}
	if s.NumSubexp() > 0 {
		s.replacement = "${1}" + redactedText
	}
	if strings.HasSuffix(expression, "@") {
		s.replacement += "@"
	}
	return s
}

// secretPatterns are compiled when the first text is redacted.
var secretPatterns = sync.OnceValue(func() []secretPattern {
	return []secretPattern{
		// A PEM block, to its end or that of the text.
		newPattern(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`, "-----begin"),
		// User and password of a URL: postgres://curfew:secret@host.
		newPattern(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@"'<>]+@`, "://"),
		// The path of an incoming webhook is a secret.
		newPattern(`(hooks\.slack\.com/)[^\s"'<>]+`, "hooks.slack.com/"),
		// Header values: Authorization: Bearer …, x-api-key: …, Cookie: ….
		newPattern(`(?i)((?:proxy-)?authorization["']?\s*[:=]\s*["']?)[^\r\n"',;]+`, "authorization"),
		newPattern(`(?i)(\b(?:set-)?cookie\s*:\s*)[^\r\n"']+`, "cookie"),
		newPattern(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`, "bearer", "basic"),
		// name=value and "name": "value" with a telling name.
		newPattern(
			`(?i)([a-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|credential|signature|api[_-]?key|access[_-]?key|private[_-]?key)[a-z0-9_.-]*["']?\s*[:=]\s*)(?:"[^"]*"|'[^']*'|[^\s"'&,;<>]+)`,
			"passw", "passphrase", "secret", "token", "credential", "signature", "key"),
		// Keys with a known prefix: curfew, AWS, Slack, GitHub, GitLab, and similar ones; JSON web
		// tokens.
		newPattern(`\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b`, "akia", "asia", "aroa", "aida"),
		newPattern(`\b(?:xox[a-z]|xapp)-[A-Za-z0-9-]{8,}`, "xox", "xapp-"),
		newPattern(`\b(?:gh[a-z]_|github_pat_|glpat-|hf_|curfew_|sk-|sk_live_|AIza)[A-Za-z0-9_-]{12,}`, "gh",
			"github_pat_",
			"glpat-", "hf_", "curfew_", "sk-", "sk_live_", "aiza"),
		newPattern(`\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`, "eyj"),
	}
})

// Redact removes secrets from a text: passwords in URLs, values of headers and of names such as
// token or password, and keys of a known form. It is applied to everything that is recorded.
func Redact(s string) string {
	small := strings.ReplaceAll(strings.ToLower(s), "ſ", "s") // (?i) also matches the long s
	for _, x := range secretPatterns() {
		if slices.ContainsFunc(x.hints, func(sign string) bool { return strings.Contains(small, sign) }) {
			s = x.ReplaceAllString(s, x.replacement)
		}
	}
	// Secret access keys of AWS have no prefix: 40 characters in a row.
	for from := 0; from < len(s); {
		to := from
		for to < len(s) && isBase64(s[to]) {
			to++
		}
		if to-from == 40 && hasMixedCharacters(s[from:to]) {
			s, to = s[:from]+redactedText+s[to:], from+len(redactedText)
		}
		from = to + 1
	}
	return s
}

// isBase64 reports whether a byte is a character of base64.
func isBase64(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '/' || c == '+'
}

// hasMixedCharacters reports whether a text has capitals, small letters and digits, as keys have
// and hexadecimal digests have not.
func hasMixedCharacters(v string) bool {
	return strings.ContainsFunc(v, unicode.IsUpper) && strings.ContainsFunc(v, unicode.IsLower) &&
		strings.ContainsFunc(v, unicode.IsDigit)
}

// redacted returns the entry without secrets.
func (e Entry) redacted() Entry {
	e.Because, e.Outcome, e.Evidence = Redact(e.Because), Redact(e.Outcome), redactAll(e.Evidence)
	return e
}

// redactAll returns a copy of evidence without secrets.
func redactAll(evidence []usage.Evidence) []usage.Evidence {
	out := slices.Clone(evidence)
	for i := range out {
		out[i].Value = Redact(out[i].Value)
	}
	return out
}
