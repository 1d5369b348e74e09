package notify

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// decode reads a section as curfew.yaml is read.
func decode(t testing.TB, src string) Config {
	t.Helper()
	var c Config
	if err := yaml.NewDecoder(strings.NewReader(src), yaml.Strict()).Decode(&c); err != nil {
		t.Fatalf("decode: %v", err)
	}
	return c
}

const complete = `
slack:
  token_env: CURFEW_SLACK_TOKEN
  default_channel: "#ml-cost"
  teams: {vision: "#vision", speech: C012AB3CD}
  users: {ana: U123, "ben@example.com": W456}
mail:
  smtp: smtp.example.com:587
  from: curfew@example.com
  domain: example.com
  username: curfew
  password_env: CURFEW_MAIL_PASSWORD
  teams: {vision: vision@example.com}
  users: {eve: eve@contractor.example.net}
webhook:
  url: https://hooks.example.com/curfew
  secret_env: CURFEW_HOOK_SECRET
  headers_env: {Authorization: CURFEW_HOOK_AUTH}
names:
  oncall: ["mail:oncall@example.com", "slack:#oncall"]
  bus: [webhook]
`

func TestCompleteConfigIsValid(t *testing.T) {
	if err := decode(t, complete).Validate(); err != nil {
		t.Fatal(err)
	}
	if err := (Config{}).Validate(); err != nil {
		t.Fatalf("the empty configuration: %v", err)
	}
}

func TestUnknownKeysAreRefused(t *testing.T) {
	var c Config
	if err := yaml.NewDecoder(strings.NewReader("slack: {token: xoxb-1}"), yaml.Strict()).Decode(&c); err == nil {
		t.Fatal("a token in the file was accepted")
	}
}

func TestValidate(t *testing.T) {
	const (
		slack = "slack: {token_env: T, "
		mail  = "mail: {smtp: 'h:25', from: c@example.com, "
		hook  = "webhook: {secret_env: S, "
	)
	for _, tt := range []struct {
		name, src, path, says string
	}{
		{"unowned without addresses", "unowned: []", "unowned", "has no addresses"},
		{"unowned by a name", "unowned: [ana]", "unowned", "none of slack:#channel"},
		{
			"unowned by a channel that is not there", "unowned: ['slack:#x']", "unowned",
			"needs the section notify.slack",
		},
		{"an account without addresses", "accounts: {'1': []}", "accounts", "has no addresses"},
		{
			"an account by a channel that is not there", "accounts: {'1': [webhook]}", "accounts",
			"needs the section notify.webhook",
		},
		{"an account without a name", "accounts: {'': [webhook]}", "accounts", "cannot be an account"},
		{"slack without a token", "slack: {default_channel: '#x'}", "slack.token_env", "missing"},
		{"two tokens", slack + "token_file: /t}", "slack.token_env", "one of them"},
		{"the token itself", "slack: {token_env: xoxb-1-secret}", "slack.token_env", "does not belong here"},
		{"a channel without #", slack + "default_channel: ml-cost}", "slack.default_channel", "neither a channel"},
		{
			"a channel that became a comment", slack + "default_channel: , default_owns: true}", "slack.default_owns",
			"# begins a comment",
		},
		{"a team's channel that became a comment", slack + "teams: {vision: }}", "slack.teams", "# begins a comment"},
		{"a user by name", slack + "users: {ana: '@ana'}}", "slack.users", "member id"},
		{"a user by channel", slack + "users: {ana: '#vision'}}", "slack.users", "member id"},
		{"one user twice", slack + "users: {ana: U123, Ana: U456}}", "slack.users", "differ only in case"},
		{"slack in the clear", slack + "base_url: 'http://slack.example.com/api'}", "slack.base_url", "https://"},
		{"mail without a port", "mail: {smtp: smtp.example.com, from: c@example.com}", "mail.smtp", "host:port"},
		{"mail to port 0", "mail: {smtp: 'h:0', from: c@example.com}", "mail.smtp", "host:port"},
		{"mail without a sender", "mail: {smtp: 'h:25'}", "mail.from", "mail address"},
		{"mail from a name", "mail: {smtp: 'h:25', from: 'Curfew <c@example.com>'}", "mail.from", "mail address"},
		{"a domain with @", mail + "domain: '@example.com'}", "mail.domain", "not a domain"},
		{"an unknown tls", mail + "tls: yes please}", "mail.tls", "none of starttls, tls and none"},
		{"a password in the clear", mail + "tls: none, username: u, password_env: P}", "mail.tls", "in the clear"},
		{"a user without a password", mail + "username: u}", "mail.password_env", "missing"},
		{"a password without a user", mail + "password_env: P}", "mail.username", "missing"},
		{"a user's address", mail + "users: {ana: 'ana'}}", "mail.users", "mail address"},
		{
			"a user's address that breaks headers", mail + `users: {ana: "ana@example.com\r\nBcc: eve@example.com"}}`,
			"mail.users", "mail address",
		},
		{"a hook without a URL", "webhook: {secret_env: S}", "webhook.url_env", "missing"},
		{"a hook with two URLs", hook + "url: 'https://h/', url_env: U}", "webhook.url", "twice"},
		{"a hook in the clear", hook + "url: 'http://h.example.com/'}", "webhook.url", "https://"},
		{"a hook with a password", hook + "url: 'https://u:p@h.example.com/'}", "webhook.url", "user name"},
		{"an unsigned hook", "webhook: {url: 'https://h.example.com/'}", "webhook.secret_env", "missing"},
		{
			"a header's value in the file", hook + "url: 'https://h/', headers_env: {Authorization: Bearer x}}",
			"webhook.headers_env", "not a value",
		},
		{
			"a header that is ours",
			hook + "url: 'https://h/', headers_env: {curfew-signature: S}}", "webhook.headers_env",
			"own to set",
		},
		{
			"a header that is none", hook + "url: 'https://h/', headers_env: {'A B': S}}", "webhook.headers_env",
			"not the name",
		},
		{"the name owner", "names: {owner: [webhook]}", "names", "their own meaning"},
		{"an empty name", "names: {'': [webhook]}", "names", "cannot be a name"},
		{"a name without addresses", "names: {oncall: []}", "names", "has no addresses"},
		{"a name of nonsense", "names: {oncall: [pigeon]}", "names", "none of slack:#channel"},
		{"a name by a channel that is not there", "names: {oncall: ['slack:#oncall']}", "names", "notify.slack"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := decode(t, tt.src).Validate()
			var fe *FieldError
			if !errors.As(err, &fe) || fe.Path != tt.path || !strings.Contains(fe.Message, tt.says) {
				t.Fatalf("Validate = %v, want %s: …%s…", err, tt.path, tt.says)
			}
			if strings.Contains(err.Error(), "secret") && strings.Contains(err.Error(), "xoxb") ||
				strings.Contains(err.Error(), "u:p@") {
				t.Errorf("the error repeats a secret: %v", err)
			}
			if strings.ContainsAny(err.Error(), "\n") {
				t.Errorf("not one line: %q", err)
			}
		})
	}
}

func TestSecret(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"FULL": "s3cret", "EMPTY": ""}[name]
		return v, ok
	}
	for _, tt := range []struct {
		name, env, file, want, says string
	}{
		{"variable", "FULL", "", "s3cret", ""},
		{"file with a line end", "", file("a", "s3cret\n"), "s3cret", ""},
		{"unset variable", "GONE", "", "", "x.token_env: the environment variable GONE is not set"},
		{"empty variable", "EMPTY", "", "", "x.token_env: the environment variable EMPTY does not hold"},
		{"no file", "", filepath.Join(dir, "gone"), "", "x.token_file: open "},
		{"file of two lines", "", file("b", "s3cret\nother"), "", "does not hold a secret of one line"},
		{"neither", "", "", "", "x.token_env: is missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Secret("x.token", tt.env, tt.file, lookup)
			if got != tt.want || (err == nil) != (tt.says == "") || err != nil &&
				!strings.Contains(err.Error(), tt.says) {
				t.Fatalf("Secret = %q, %v; want %q, %q", got, err, tt.want, tt.says)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error repeats the secret: %v", err)
			}
		})
	}
}
