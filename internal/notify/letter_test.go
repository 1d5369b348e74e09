package notify

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/alert"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/notify/notifytest"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

func TestGoldenText(t *testing.T) {
	for _, c := range notifytest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			notifytest.Golden(t, c.Name+".txt", Compose(c.Message).Text())
		})
	}
}

func TestSubject(t *testing.T) {
	with := func(change func(*action.Message)) action.Message {
		m := notifytest.Warning()
		change(&m)
		return m
	}
	for _, tt := range []struct {
		name string
		m    action.Message
		want string
	}{
		{
			"a warning", notifytest.Warning(),
			"curfew: i-0abc (vision/ana) will be terminated at 15:04 UTC unless you keep it",
		},
		{"in UTC wherever it was made", with(func(m *action.Message) {
			m.ActsAt = m.ActsAt.In(time.FixedZone("CET", 3600))
		}), "curfew: i-0abc (vision/ana) will be terminated at 15:04 UTC unless you keep it"},
		{
			"without a keep none is offered", with(func(m *action.Message) { m.Keep = "" }),
			"curfew: i-0abc (vision/ana) will be terminated at 15:04 UTC",
		},
		{
			"only a team", with(func(m *action.Message) { m.Resource.Owner.User = "" }),
			"curfew: i-0abc (vision) will be terminated at 15:04 UTC unless you keep it",
		},
		{
			"only a user", with(func(m *action.Message) { m.Resource.Owner.Team = "" }),
			"curfew: i-0abc (ana) will be terminated at 15:04 UTC unless you keep it",
		},
		{
			"stopped", with(func(m *action.Message) { m.Verb = policy.Stop }),
			"curfew: i-0abc (vision/ana) will be stopped at 15:04 UTC unless you keep it",
		},
		{
			"nothing will be done", with(func(m *action.Message) { m.ActsAt = time.Time{} }),
			"curfew: i-0abc (vision/ana) could be terminated",
		},
		{
			"nothing to do", with(func(m *action.Message) { m.Verb, m.Because = policy.Notify, "idle" }),
			"curfew: i-0abc (vision/ana): idle",
		},
		{"done", with(func(m *action.Message) { m.Kind = "acted" }), "curfew: i-0abc (vision/ana) was terminated"},
		{
			"an alarm does not say that it was done", with(func(m *action.Message) { m.Kind = "alarm" }),
			"curfew: i-0abc (vision/ana) needs a look: it is not confirmed that it was terminated",
		},
		{
			"a notice", with(func(m *action.Message) { m.Kind, m.Because = "notice", "price rose" }),
			"curfew: i-0abc (vision/ana): price rose",
		},
		{"no resource", action.Message{Kind: "notice", Because: "frozen"}, "curfew: frozen"},
		{"nothing at all", action.Message{}, "curfew: see below"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Compose(tt.m).Subject; got != tt.want {
				t.Errorf("subject = %q, want %q", got, tt.want)
			}
		})
	}
}

// TestEveryVerbHasText checks that every verb, including new destructive ones, is announced with
// its effect.
func TestEveryVerbHasText(t *testing.T) {
	for _, v := range []policy.Verb{
		policy.Tag, policy.Checkpoint, policy.Suspend, policy.Scale, policy.Stop, policy.Hibernate,
		policy.Terminate, policy.Delete, policy.Release, policy.PutRetention, policy.PutLifecycle} {
		m := notifytest.Warning()
		m.Verb = v
		if got := Compose(m).Subject; !strings.Contains(got, " will be ") || !strings.Contains(got, "15:04 UTC") {
			t.Errorf("%s: %q does not say what will be done when", v, got)
		}
	}
}

func TestCost(t *testing.T) {
	for _, tt := range []struct {
		name   string
		hourly inventory.Fact[money.Amount]
		want   string
	}{
		{"unknown is not free", inventory.Fact[money.Amount]{}, "not known"},
		{"free", inventory.Known(money.Amount(0)), "$0.00 an hour"},
		{"next to nothing is not free", inventory.Known(money.Cent / 10), "<$0.01 an hour"},
		{"dollars", inventory.Known(98*money.USD + 32*money.Cent), "$98.32 an hour"},
		{"credit", inventory.Known(-money.USD), "-$1.00 an hour"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := cost(tt.hourly); got != tt.want {
				t.Errorf("cost = %q, want %q", got, tt.want)
			}
		})
	}
}

func message(t *rapid.T) action.Message {
	s := func(name string) string {
		return rapid.OneOf(rapid.String(), rapid.StringMatching("[\\x00-\\xff]{0,40}"),
			rapid.SampledFrom([]string{
				"", "\r\nBcc: x", "<!here>", "```", "^\u200d", "👩\u200d🔬", "🏳️\u200d",
			})).Draw(t, name)
	}
	m := notifytest.Warning()
	m.Kind = rapid.SampledFrom([]string{"warning", "acted", "alarm", "notice", ""}).Draw(t, "kind")
	r := *m.Resource
	r.ID, r.Name, r.Type, r.Zone, r.Account = s("id"), s("name"), s("type"), s("zone"), s("account")
	r.Owner = inventory.Owner{Team: s("team"), User: s("user")}
	m.Resource, m.Because, m.Know, m.Keep, m.To = &r, s("because"), s("know"), s("keep"), s("to")
	m.KeepTag, m.Lost, m.Creator = s("keep tag"), s("lost"), s("creator")
	m.Evidence = []usage.Evidence{
		{
			Signal: s("signal"), Value: s("value"), Source: s("source"),
			Window: time.Duration(rapid.Int64Min(0).Draw(t, "window")),
		},
	}
	return m
}

// looseJoiner matches a joiner that does not join parts of an emoji, unlike in "👩\u200d🔬".
var looseJoiner = regexp.MustCompile(`(^|[^\p{So}\x{1f3fb}-\x{1f3ff}\x{fe00}-\x{fe0f}])\x{200d}|\x{200d}([^\p{So}]|$)`)

// TestLettersEscapeLineBreaks checks that a name can neither begin a line nor control a terminal.
func TestLettersEscapeLineBreaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Compose(message(t))
		lines := []string{l.Subject, l.Ask, l.Keep, l.AskTag, l.KeepTag}
		for _, row := range l.Rows {
			lines = append(lines, append(row.Lines, row.Name)...)
		}
		for _, line := range lines {
			if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool {
				return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != 0x200d
			}) || looseJoiner.MatchString(line) {
				t.Fatalf("%q is not one plain line", line)
			}
			if n := utf8.RuneCountInString(line); n > 1000 && line != l.Keep && line != l.KeepTag {
				t.Fatalf("a line of %d characters", n)
			}
		}
		if !strings.HasPrefix(l.Subject, "curfew: ") {
			t.Fatalf("subject %q", l.Subject)
		}
	})
}

func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, n := rapid.String().Draw(t, "s"), rapid.IntRange(1, 20).Draw(t, "n")
		got := plain.Cut(s, n)
		if utf8.RuneCountInString(got) > n {
			t.Fatalf("plain.Cut(%q, %d) = %q is too long", s, n, got)
		}
		if utf8.RuneCountInString(s) <= n && got != s {
			t.Fatalf("plain.Cut(%q, %d) = %q, although it fits", s, n, got)
		}
		if got != s && !strings.HasPrefix(s, strings.TrimSuffix(got, "…")) {
			t.Fatalf("plain.Cut(%q, %d) = %q is not its beginning", s, n, got)
		}
	})
}

func BenchmarkText(b *testing.B) {
	m := notifytest.Warning()
	b.ReportAllocs()
	for b.Loop() {
		_ = Compose(m).Text()
	}
}

// TestApprovalLetterHasPlan checks that the lines of the plan are complete, without control
// characters, and that the command approves that request.
func TestApprovalLetterHasPlan(t *testing.T) {
	l := Compose(action.Message{
		Kind: "approval", Item: "4f1c2a",
		Because: "ana asks to delete vol-1, at most $0.03 an hour", Keep: "curfew keep x",
		Plan: []string{"delete vol-1", "  call: delete-volume", "    - \"a\": 1\x1b[2J", "saves: $3.00 a month"}})
	want := "curfew: approval needed: ana asks to delete vol-1, at most $0.03 an hour\n\n" +
		"Why   ana asks to delete vol-1, at most $0.03 an hour\nPlan  delete vol-1\n        call: delete-volume\n         " +
		" - \"a\": 1[2J\n      saves: $3.00 a month\n\n" +
		"To approve it:\n    curfew approve 4f1c2a\n"
	if got := l.Text(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAlertsNameNoMachine checks that an alert about a person contains no location and price of a
// machine.
func TestAlertsNameNoMachine(t *testing.T) {
	r := inventory.Resource{
		Cloud: alert.Cloud, Account: alert.Account, Region: "global", Kind: alert.KindPerson, ID: "ana",
		Owner: inventory.Owner{User: "ana", Team: "vision"},
	}
	text := Compose(action.Message{
		Kind: "notice", To: "ana", Resource: &r, Verb: policy.Notify, Because: "person ana spent $470 in 24 hours",
		Keep: "curfew keep " + r.Ref().String() + " --for 24h --reason TEXT",
	}).Text()
	want := `curfew: ana (vision/ana): person ana spent $470 in 24 hours

Why   person ana spent $470 in 24 hours
For   ana

Known already? Then silence it for a day:
    curfew keep curfew/installation/global/person/ana --for 24h --reason TEXT
`
	if text != want {
		t.Errorf("got:\n%s\nwant:\n%s", text, want)
	}
}
