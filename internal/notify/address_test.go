package notify

import (
	"net/mail"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/plain"
)

func TestParseAddress(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Address
		ok   bool
	}{
		{"slack:#oncall", Address{"slack", "#oncall"}, true},
		{"slack:U012AB3CD", Address{"slack", "U012AB3CD"}, true},
		{"mail:oncall@example.com", Address{"mail", "oncall@example.com"}, true},
		{"webhook", Address{"webhook", ""}, true},
		{"webhook:https://h/", Address{}, false},
		{"webhook:", Address{}, false},
		{"slack:oncall", Address{}, false},
		{"slack:#on call", Address{}, false},
		{"slack:", Address{}, false},
		{"mail:oncall", Address{}, false},
		{"mail:a@b@example.com", Address{}, false},
		{"mail:a@example", Address{}, false},
		{"mail:\"a b\"@example.com", Address{}, false},
		{"mail:a@example.com\r\nBcc: b@example.com", Address{}, false},
		{"mail:a@example.com,b@example.com", Address{}, false},
		{"mail:" + strings.Repeat("a", 65) + "@example.com", Address{}, false},
		{"#oncall", Address{}, false},
		{"", Address{}, false},
	} {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseAddress(tt.in)
			if got != tt.want || (err == nil) != tt.ok {
				t.Errorf("ParseAddress = %+v, %v; want %+v, ok %v", got, err, tt.want, tt.ok)
			}
		})
	}
}

func TestPeople(t *testing.T) {
	c := decode(t, complete)
	open := c
	open.Mail.Domain = ""
	slackOnly := Config{Slack: c.Slack}
	for _, tt := range []struct {
		name   string
		config Config
		user   string
		want   string
	}{
		{"by name, Slack first", c, "ana", "slack:U123 mail:ana@example.com"},
		{"case does not matter", c, "ANA", "slack:U123 mail:ANA@example.com"},
		{"by address of our domain", c, "ana@example.com", "slack:U123 mail:ana@example.com"},
		{"by an address that is listed", c, "ben@example.com", "slack:W456 mail:ben@example.com"},
		{"a listed address wins", c, "eve", "mail:eve@contractor.example.net"},
		{"an address of elsewhere is not ours to write to", c, "ana@evil.example", ""},
		{"a user of the same name at another domain is another person", c, "ana@example.org", ""},
		{"without a domain a tag's address is taken", open, "ana@example.org", "mail:ana@example.org"},
		{"without a domain none is derived", open, "fay", ""},
		{"a name that makes no address", c, "Ana Smith", ""},
		{"two addresses in one tag", c, "fay@example.com, gus@example.com", ""},
		{"a header in a tag", c, "fay\r\nBcc: eve@evil.example", ""},
		{"no mail configured", slackOnly, "fay@example.com", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := joined(tt.config.user(tt.user)); got != tt.want {
				t.Errorf("user %q is reached by %q, want %q", tt.user, got, tt.want)
			}
		})
	}
	if got := joined(c.team("Vision")); got != "slack:#vision mail:vision@example.com" {
		t.Errorf("team Vision is reached by %q", got)
	}
	if got := joined(c.team("unknown")); got != "" {
		t.Errorf("team unknown is reached by %q", got)
	}
}

func joined(list []Address) string {
	var s []string
	for _, a := range list {
		s = append(s, a.String())
	}
	return strings.Join(s, " ")
}

// FuzzAddress checks that a parsed address is formatted as before, and cannot inject anything into
// a header or conversation.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{
		"slack:#oncall", "mail:a.b+c@example.com", "webhook", "mail:a@b.c\n", "mail:.a@b.c", "slack:#ü",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		if a.String() != s {
			t.Fatalf("%q is written %q", s, a)
		}
		if plain.Line(s) != s || strings.ContainsAny(s, " <>\",;") {
			t.Fatalf("%q is an address", s)
		}
		if a.Channel == MailChannel {
			parsed, err := mail.ParseAddress(a.To)
			if err != nil || parsed.Address != a.To {
				t.Fatalf("%q is no mail address to others: %v, %v", a.To, parsed, err)
			}
		}
	})
}

// FuzzUser checks that an address outside our domain only receives mail if it is listed, regardless
// of tags.
func FuzzUser(f *testing.F) {
	for _, s := range []string{
		"ana", "ana@example.com", "x@example.com@evil.example", "ana@example.com.evil.example",
		"a b", "%00@example.com",
	} {
		f.Add(s)
	}
	c := decode(f, complete)
	listed := []string{"U123", "W456", "eve@contractor.example.net"}
	f.Fuzz(func(t *testing.T, s string) {
		for _, a := range c.user(s) {
			if !slices.Contains(listed, a.To) && !strings.HasSuffix(strings.ToLower(a.To), "@example.com") {
				t.Fatalf("the tag %q reaches %s", s, a)
			}
			if _, err := ParseAddress(a.String()); err != nil {
				t.Fatalf("the tag %q gives %q, which is no address", s, a)
			}
		}
	})
}
