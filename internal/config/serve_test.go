package config

import (
	"strings"
	"testing"
)

func TestServeRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		line string
		want string
	}{
		"a path in the public URL": {
			"serve:\n  public_url: https://x.example/curfew\n", ":2:", "it is a URL such as",
		},
		"a certificate without key": {"serve:\n  tls: {cert_file: a.pem}\n", ":2:", "come together"},
		"no client": {
			"serve:\n  public_url: https://x.example\n  sign_in: {issuer: https://id.example}\n", ":3:", "client_id",
		},
		"a provider that leads back": {
			"serve:\n  sign_in: {issuer: https://id.example, client_id: c}\n", ":2:", "public_url, which is missing",
		},
		"an issuer without TLS": {
			"serve:\n  public_url: https://x.example\n  sign_in:\n    issuer: http://id.example\n    client_id: c\n",
			":4:",
			"https://accounts.example.com",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			err := Decode("curfew.yaml", []byte(tc.text), &c)
			if err == nil || !strings.Contains(err.Error(), tc.line) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s %s", err, tc.line, tc.want)
			}
		})
	}
}
