package config

import (
	"strings"
	"testing"
)

func TestServerURL(t *testing.T) {
	for name, tc := range map[string]struct{ text, want, refusal string }{
		"a host":                     {"https://curfew.example.com", "https://curfew.example.com", ""},
		"a slash after it":           {"https://Curfew.example.com:8443/", "https://curfew.example.com:8443", ""},
		"this machine without TLS":   {"http://127.0.0.1:8787", "http://127.0.0.1:8787", ""},
		"this machine by its name":   {"http://localhost:8787", "http://localhost:8787", ""},
		"another machine, no TLS":    {"http://curfew.example.com", "", "reached by https"},
		"a name that begins like it": {"http://localhost.example.com", "", "reached by https"},
		"a path":                     {"https://curfew.example.com/api", "", "such as https://"},
		"a password":                 {"https://ana:secret@curfew.example.com", "", "holds no name and no password"},
		"no scheme":                  {"curfew.example.com", "", "such as https://"},
		"another scheme":             {"file:///etc/passwd", "", "such as https://"},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := ServerURL(tc.text)
			switch {
			case tc.refusal != "":
				if err == nil || !strings.Contains(err.Error(), tc.refusal) {
					t.Errorf("got %v, %v, want %s", u, err, tc.refusal)
				}
			case err != nil || u.String() != tc.want:
				t.Errorf("got %v, %v, want %s", u, err, tc.want)
			}
		})
	}
}

// TestServerFromConfiguration checks that file and environment are validated alike.
func TestServerFromConfiguration(t *testing.T) {
	c := Default()
	if err := Decode("curfew.yaml", []byte("identity: ana\nserver: http://far.example.com\n"), &c); err == nil ||
		!strings.Contains(err.Error(), "curfew.yaml:2:") {
		t.Errorf("a file: %v", err)
	}
	with := func(value string) func(string) (string, bool) {
		return func(k string) (string, bool) { return value, k == "CURFEW_SERVER" }
	}
	if _, err := Load("", with("http://far.example.com")); err == nil ||
		!strings.Contains(err.Error(), "CURFEW_SERVER") {
		t.Errorf("the environment: %v", err)
	}
	if c, err := Load("", with("https://curfew.example.com")); err != nil || c.Server != "https://curfew.example.com" {
		t.Errorf("got %q, %v", c.Server, err)
	}
}
