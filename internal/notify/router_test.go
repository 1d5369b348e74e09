package notify

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/notify/notifytest"
)

// recorder is a channel that answers as it is told and remembers what it was sent.
type recorder struct {
	mu      sync.Mutex
	answers []error // in order; the last one goes on
	refuses map[string]error
	sent    []string
	told    []string
	at      []time.Time
}

func (r *recorder) Send(_ context.Context, to string, m action.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent, r.told, r.at = append(r.sent, to), append(r.told, m.To), append(r.at, time.Now())
	if err := r.refuses[to]; err != nil {
		return err
	}
	if len(r.answers) == 0 {
		return nil
	}
	err := r.answers[0]
	if len(r.answers) > 1 {
		r.answers = r.answers[1:]
	}
	return err
}

// lines is a router over recorders.
type lines struct {
	*Router
	slack, mail, hook *recorder
}

func newLines(t *testing.T, c Config) lines {
	t.Helper()
	l := lines{slack: &recorder{}, mail: &recorder{}, hook: &recorder{}}
	open := func(name string, used bool, r *recorder) Opener {
		return func(Config, Lookup) (string, Channel, error) {
			if !used {
				return name, nil, nil
			}
			return name, r, nil
		}
	}
	var err error
	l.Router, err = New(c, nil, open(SlackChannel, c.Slack.Used(), l.slack), open(MailChannel, c.Mail.Used(), l.mail),
		open(WebhookChannel, c.Webhook.Used(), l.hook))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func owned(team, user string) action.Message {
	m := notifytest.Warning()
	m.Resource.Owner = inventory.Owner{Team: team, User: user}
	return m
}

func TestRoutes(t *testing.T) {
	c := decode(t, complete)
	owns := decode(t, complete)
	owns.Slack.DefaultOwns = true
	unread := owned("", "")
	unread.Resource.Tags = nil
	notice := owned("", "")
	notice.Kind = "notice"
	unowned, accounts := decode(t, complete), decode(t, complete)
	unowned.Unowned = []string{"mail:platform@example.com", "webhook"}
	accounts.Unowned, accounts.Accounts = unowned.Unowned, map[string][]string{
		"123456789012": {"slack:#vision-costs"}, "2": {"webhook"},
	}
	made := func(by, team, user string) action.Message {
		m := owned(team, user)
		m.Creator = by
		return m
	}
	for _, tt := range []struct {
		name      string
		config    Config
		recipient string
		m         action.Message
		want      string // the address, or what the error says
		told      string
	}{
		{"the owner is the user", c, "owner", owned("vision", "ana"), "slack:U123", "ana"},
		{"a user without Slack has mail", c, "owner", owned("vision", "fay"), "mail:fay@example.com", "fay"},
		{"without a user it is the team", c, "owner", owned("vision", ""), "slack:#vision", "team vision"},
		{
			"a user whom no rule reaches falls back to the team", c, "owner",
			owned("vision", "Fay Smith"), "slack:#vision",
			"team vision",
		},
		{"the team is not the user", c, "team", owned("vision", "ana"), "slack:#vision", "team vision"},
		{"a name", c, "oncall", owned("vision", "ana"), "mail:oncall@example.com", "oncall"},
		{"a name of the webhook", c, "bus", owned("", ""), "webhook", "bus"},
		{"it has no owner", c, "owner", owned("", ""), "no recipient: no tag of i-0abc names its owner", ""},
		{"no team owns it", c, "team", owned("", "ana"), "no recipient: no tag of i-0abc (ana) names its team", ""},
		{"its tags could not be read", c, "owner", unread, "no recipient: the tags of i-0abc could not be read", ""},
		{
			"an owner whom no rule reaches", c, "owner", owned("unknown", "Fay Smith"),
			"no recipient: no rule of notify leads to the owner of i-0abc (unknown/Fay Smith)", "",
		},
		{"an unknown name", c, "boss", owned("vision", "ana"), `no recipient: "boss" is neither owner nor team`, ""},
		{
			"no resource has no owner", c, "owner", action.Message{Kind: "warning"},
			"no recipient: the message is about no resource", "",
		},
		{"the default channel takes no warning", c, "owner", owned("unknown", ""), "no recipient", ""},
		{"the default channel takes the rest", c, "owner", notice, "slack:#ml-cost", "#ml-cost"},
		{"the default channel that owns takes warnings", owns, "owner", owned("", ""), "slack:#ml-cost", "#ml-cost"},
		{
			"the contacts for unowned resources answer", unowned, "owner", owned("", ""), "mail:platform@example.com",
			"the contacts for unowned resources",
		},
		{
			"and for an owner whom no rule reaches", unowned, "team", owned("unknown", ""),
			"mail:platform@example.com",
			"the contacts for unowned resources",
		},
		{"but not for what has an owner", unowned, "owner", owned("vision", "ana"), "slack:U123", "ana"},
		{"and not for a name", unowned, "boss", owned("", ""), "no recipient", ""},
		{
			"and for what is about no resource", unowned, "owner", action.Message{Kind: "alarm"},
			"mail:platform@example.com",
			"the contacts for unowned resources",
		},
		{
			"those of the account come first", accounts, "owner", owned("", ""), "slack:#vision-costs",
			"account 123456789012",
		},
		{
			"the creator of an unowned resource comes before them", accounts, "owner",
			made("ana", "", ""), "slack:U123",
			"ana",
		},
		{
			"who made it is not asked where there is an owner", accounts, "owner", made("ana", "unknown", ""),
			"slack:#vision-costs", "account 123456789012",
		},
		{
			"nor where the team is meant", accounts, "team", made("ana", "", ""), "slack:#vision-costs",
			"account 123456789012",
		},
		{
			"a maker of another domain is not written to", c, "owner",
			made("ana@evil.example", "", ""), "no recipient",
			"",
		},
		{"but not for a name", owns, "boss", owned("", ""), "no recipient", ""},
		{"no channel at all", Config{}, "owner", owned("vision", "ana"), "no recipient: no channel is configured", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLines(t, tt.config)
			got, err := l.Notify(t.Context(), tt.recipient, tt.m)
			if tt.told == "" {
				if !errors.Is(err, ErrNoRecipient) || got != "" || !strings.HasPrefix(err.Error(), tt.want) {
					t.Fatalf("Notify = %q, %v; want the error %q", got, err, tt.want)
				}
				if sent := len(l.slack.sent) + len(l.mail.sent) + len(l.hook.sent); sent > 0 {
					t.Errorf("%d messages were sent all the same", sent)
				}
				return
			}
			told := append(append(l.slack.told, l.mail.told...), l.hook.told...)
			if err != nil || got != tt.want || len(told) != 1 || told[0] != tt.told {
				t.Fatalf("Notify = %q, %v, told %q; want %q, told %q", got, err, told, tt.want, tt.told)
			}
		})
	}
}

func TestZeroRouterReachesNoRecipient(t *testing.T) {
	if got, err := new(Router).Notify(t.Context(), Owner, notifytest.Warning()); !errors.Is(err, ErrNoRecipient) ||
		got != "" {
		t.Fatalf("Notify = %q, %v; want ErrNoRecipient", got, err)
	}
}

func TestStopsAtFirstAcceptingChannel(t *testing.T) {
	c := decode(t, complete)
	t.Run("a refusal goes on to the next", func(t *testing.T) {
		l := newLines(t, c)
		l.slack.refuses = map[string]error{"U123": &Failure{Why: "account_inactive"}}
		got, err := l.Notify(t.Context(), Owner, owned("vision", "ana"))
		if err != nil || got != "mail:ana@example.com" {
			t.Fatalf("Notify = %q, %v", got, err)
		}
		if len(l.slack.sent) != 1 {
			t.Errorf("sent to Slack %q, want one final refusal", l.slack.sent)
		}
	})
	t.Run("and then to the team", func(t *testing.T) {
		l := newLines(t, c)
		l.slack.refuses = map[string]error{"U123": &Failure{Why: "account_inactive"}}
		l.mail.answers = []error{&Failure{Why: "550 no such user"}}
		got, err := l.Notify(t.Context(), Owner, owned("vision", "ana"))
		if err != nil || got != "slack:#vision" || l.slack.told[1] != "team vision" {
			t.Fatalf("Notify = %q, %v, told %q", got, err, l.slack.told)
		}
	})
	t.Run("none accepts", func(t *testing.T) {
		l := newLines(t, c)
		l.slack.answers = []error{&Failure{Why: "invalid_auth"}}
		l.mail.answers = []error{&Failure{Why: "550 go away"}}
		got, err := l.Notify(t.Context(), Owner, owned("vision", "ana"))
		const want = "notify owner of i-0abc (vision/ana): slack:U123: invalid_auth; mail:ana@example.com: 550 go away; " +
			"slack:#vision: invalid_auth; mail:vision@example.com: 550 go away"
		if got != "" || err == nil || err.Error() != want {
			t.Fatalf("Notify = %q, %v;\nwant %s", got, err, want)
		}
		var f *Failure
		if !errors.As(err, &f) {
			t.Errorf("the refusal is not in the chain of %v", err)
		}
	})
	t.Run("one address twice is tried once", func(t *testing.T) {
		l := newLines(t, decode(t, "slack: {token_env: T, users: {ana: U123}, teams: {vision: U123}}"))
		l.slack.answers = []error{&Failure{Why: "account_inactive"}}
		if _, err := l.Notify(t.Context(), Owner, owned("vision", "ana")); err == nil || len(l.slack.sent) != 1 {
			t.Errorf("Notify: %v, sent to %q", err, l.slack.sent)
		}
	})
}

// TestRetries runs on a clock of its own.
func TestRetries(t *testing.T) {
	temporary := &Failure{Why: "503", Temporary: true}
	asks := func(d time.Duration) error { return &Failure{Why: "429", Temporary: true, RetryAfter: d} }
	for _, tt := range []struct {
		name    string
		answers []error
		waits   []time.Duration
		says    string // "" is success
	}{
		{"accepted", []error{nil}, nil, ""},
		{"accepted at the second attempt", []error{temporary, nil}, []time.Duration{time.Second}, ""},
		{
			"accepted at the third", []error{temporary, temporary, nil}, []time.Duration{time.Second, 2 * time.Second},
			"",
		},
		{
			"attempts are bounded", []error{temporary}, []time.Duration{time.Second, 2 * time.Second},
			"503 (tried 3 times)",
		},
		{"Retry-After is honored", []error{asks(17 * time.Second), nil}, []time.Duration{17 * time.Second}, ""},
		{"a short Retry-After does not hurry", []error{asks(time.Millisecond), nil}, []time.Duration{time.Second}, ""},
		{
			"a long Retry-After is not waited for", []error{asks(10 * time.Minute)}, nil,
			"429, and asks to wait for 10m",
		},
		{"a final refusal is final", []error{&Failure{Why: "not_in_channel"}}, nil, "not_in_channel"},
		{"what is not understood is final", []error{errors.New("odd")}, nil, "odd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLines(t, decode(t, complete))
				l.slack.answers = tt.answers
				_, err := l.Notify(t.Context(), Team, owned("vision", ""))
				if tt.says == "" && err != nil {
					t.Fatal(err)
				}
				// Mail is the team's second address, so that Slack's failure is not the end.
				if tt.says != "" && (err != nil || len(l.mail.sent) != 1) {
					t.Fatalf("Notify: %v, mail %q; want the next address", err, l.mail.sent)
				}
				var waits []time.Duration
				for i := 1; i < len(l.slack.at); i++ {
					waits = append(waits, l.slack.at[i].Sub(l.slack.at[i-1]))
				}
				if len(waits) != len(tt.waits) {
					t.Fatalf("waited %v, want %v", waits, tt.waits)
				}
				for i := range waits {
					if waits[i] != tt.waits[i] {
						t.Errorf("waited %v, want %v", waits, tt.waits)
					}
				}
				if tt.says == "" {
					return
				}
				l.mail.answers = []error{&Failure{Why: "550"}}
				_, err = l.Notify(t.Context(), Team, owned("vision", ""))
				if err == nil || !strings.Contains(err.Error(), "slack:#vision: "+tt.says+"; mail:") {
					t.Errorf("Notify: %v; want it to say %q", err, tt.says)
				}
			})
		})
	}
}

// stuck never answers.
type stuck struct{}

func (stuck) Send(ctx context.Context, _ string, _ action.Message) error {
	<-ctx.Done()
	return Secrets{}.Unreachable(ctx, ctx.Err())
}

func TestChannelTimesOut(t *testing.T) {
	c := decode(t, complete)
	open := func(Config, Lookup) (string, Channel, error) { return SlackChannel, stuck{}, nil }
	t.Run("an attempt ends after ten seconds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, err := New(c, nil, open)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err = r.Notify(t.Context(), Team, owned("vision", ""))
			if took := time.Since(began); err == nil || took != 33*time.Second {
				t.Errorf("Notify: %v after %s, want an error after three attempts of 10 s and waits of 1 and 2 s", err,
					took)
			}
			if err != nil && !strings.Contains(err.Error(), "no answer in time") {
				t.Errorf("Notify: %v", err)
			}
		})
	})
	t.Run("a canceled context ends it at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLines(t, c)
			l.slack.answers = []error{&Failure{Why: "429", Temporary: true, RetryAfter: 20 * time.Second}}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*time.Second, cancel)
			began := time.Now()
			_, err := l.Notify(ctx, Team, owned("vision", ""))
			if took := time.Since(began); !errors.Is(err, context.Canceled) || took != 5*time.Second {
				t.Errorf("Notify: %v after %s, want the cancellation after 5s", err, took)
			}
			if len(l.mail.sent) != 0 {
				t.Errorf("mail was sent after the cancellation: %q", l.mail.sent)
			}
		})
	})
	t.Run("a slow channel delays no other", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			mail := &recorder{}
			r, err := New(c, nil, open, func(Config, Lookup) (string, Channel, error) {
				return MailChannel, mail, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = r.Notify(t.Context(), Team, owned("speech", "")) }()
			synctest.Wait()
			began := time.Now()
			if _, err := r.Notify(t.Context(), "oncall", owned("", "")); err != nil || time.Since(began) != 0 {
				t.Errorf("Notify: %v after %s", err, time.Since(began))
			}
		})
	})
}

func TestReportsChannelConfigurationErrors(t *testing.T) {
	broken := func(Config, Lookup) (string, Channel, error) {
		return SlackChannel, nil, fieldError("slack.token_env", "is not set")
	}
	var fe *FieldError
	if _, err := New(decode(t, complete), nil, broken); !errors.As(err, &fe) {
		t.Errorf("New = %v, want the opener's mistake", err)
	}
	if _, err := New(Config{Slack: Slack{DefaultOwns: true}}, nil); !errors.As(err, &fe) {
		t.Errorf("New = %v, want the configuration's mistake", err)
	}
}

func TestCheck(t *testing.T) {
	l := newLines(t, decode(t, complete))
	for recipient, ok := range map[string]bool{
		"owner": true, "team": true, "oncall": true, "Oncall": false, "": false, "slack:#oncall": false,
	} {
		if err := l.Check(recipient); (err == nil) != ok {
			t.Errorf("Check(%q) = %v, want ok %v", recipient, err, ok)
		}
	}
}

func TestClean(t *testing.T) {
	s := Secrets{"p/ss word", "", "\x00curfew\x00p/ss word", `q"\uote`}
	for _, said := range []string{
		"p/ss word", `q"\uote`, `q\"\\uote`, "p%2Fss+word", "p%2Fss%20word", "cC9zcyB3b3Jk",
		"AGN1cmZldwBwL3NzIHdvcmQ=",
	} {
		got := s.Clean("535 refused: " + said + "\r\nnext")
		if got != "535 refused: [hidden] next" {
			t.Errorf("Clean(%q) = %q", said, got)
		}
	}
	if got := s.Clean(strings.Repeat("x", 1000)); len([]rune(got)) != maxAnswer {
		t.Errorf("Clean keeps %d characters", len([]rune(got)))
	}
}

func BenchmarkRoute(b *testing.B) {
	c := decode(b, complete)
	for _, name := range []string{"a", "b", "c"} {
		for i := range 2000 {
			c.Slack.Users[name+strings.Repeat("x", i%50)+string(rune('a'+i%26))] = "U123"
		}
	}
	r, err := New(c, nil, func(Config, Lookup) (string, Channel, error) { return SlackChannel, &recorder{}, nil })
	if err != nil {
		b.Fatal(err)
	}
	m := owned("vision", "unknown user")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.route(Owner, m); err != nil {
			b.Fatal(err)
		}
	}
}
