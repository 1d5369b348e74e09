package mail

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/notify/notifytest"
)

const password = "correct horse/battery+staple"

func lookup(name string) (string, bool) { return password, name == "PASSWORD" }

func config(s *server) notify.Config {
	return notify.Config{Mail: notify.Mail{SMTP: s.Addr().String(), From: "curfew@example.com", Domain: "example.com",
		Username: "curfew", PasswordEnv: "PASSWORD"}}
}

func channel(t testing.TB, c notify.Config) notify.Channel {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	name, ch, err := Open(c, lookup)
	if err != nil || name != "mail" {
		t.Fatalf("Open = %q, %v", name, err)
	}
	return ch
}

// seen is a mail as a reader's program shows it.
type seen struct {
	header     netmail.Header
	subject    string
	text, html string
}

func read(t testing.TB, data string) seen {
	t.Helper()
	m, err := netmail.ReadMessage(strings.NewReader(data))
	if err != nil {
		t.Fatalf("read the mail: %v\n%s", err, data)
	}
	s := seen{header: m.Header}
	if s.subject, err = new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject")); err != nil {
		t.Fatal(err)
	}
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatalf("Content-Type %q, %v", m.Header.Get("Content-Type"), err)
	}
	parts := multipart.NewReader(m.Body, params["boundary"])
	for {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		kind, params, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err != nil || !strings.EqualFold(params["charset"], "utf-8") {
			t.Fatalf("part of %q, %v", p.Header.Get("Content-Type"), err)
		}
		if enc := p.Header.Get("Content-Transfer-Encoding"); enc != "quoted-printable" {
			t.Fatalf("part in %q", enc)
		}
		b, err := io.ReadAll(quotedprintable.NewReader(p))
		if err != nil {
			t.Fatal(err)
		}
		content := strings.ReplaceAll(string(b), "\r\n", "\n")
		switch kind {
		case "text/plain":
			s.text = content
		case "text/html":
			s.html = content
		default:
			t.Fatalf("part of %s", kind)
		}
	}
}

func TestDelivery(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server func(*server)
		config func(*notify.Mail)
		want   delivery
	}{
		{"STARTTLS and AUTH PLAIN", nil, nil, delivery{tls: true, user: "curfew"}},
		{"AUTH LOGIN", func(s *server) {
			s.extensions = []string{"STARTTLS", "AUTH LOGIN"}
		}, nil, delivery{tls: true, user: "curfew"}},
		{"TLS from the start", func(s *server) {
			s.implicit = true
		}, func(m *notify.Mail) { m.TLS = "tls" }, delivery{tls: true, user: "curfew"}},
		{"no user", nil, func(m *notify.Mail) { m.Username, m.PasswordEnv = "", "" }, delivery{tls: true}},
		{"a relay without TLS", func(s *server) {
			s.extensions = nil
		}, func(m *notify.Mail) { m.TLS, m.Username, m.PasswordEnv = "none", "", "" }, delivery{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, tt.server)
			c := config(s)
			if tt.config != nil {
				tt.config(&c.Mail)
			}
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			r, err := notify.New(c, lookup, Open)
			if err != nil {
				t.Fatal(err)
			}
			accepted, err := r.Notify(t.Context(), notify.Owner, notifytest.Warning())
			if err != nil || accepted != "mail:ana@example.com" {
				t.Fatalf("Notify = %q, %v", accepted, err)
			}
			taken := s.deliveries()
			if len(taken) != 1 {
				t.Fatalf("%d mails, want one", len(taken))
			}
			got := taken[0]
			tt.want.from, tt.want.to, tt.want.data = "curfew@example.com", "ana@example.com", got.data
			if got != tt.want {
				t.Errorf("delivered %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestWhatAReaderSees(t *testing.T) {
	s := newServer(t, nil)
	if err := channel(t, config(s)).Send(t.Context(), "ana@example.com", notifytest.Warning()); err != nil {
		t.Fatal(err)
	}
	got := read(t, s.deliveries()[0].data)
	for header, want := range map[string]string{
		"From":           `"curfew" <curfew@example.com>`,
		"To":             "<ana@example.com>",
		"Auto-Submitted": "auto-generated",
	} {
		if v := got.header.Get(header); v != want {
			t.Errorf("%s: %q, want %q", header, v, want)
		}
	}
	if want := "curfew: i-0abc (vision/ana) will be terminated at 15:04 UTC unless you keep it"; got.subject != want {
		t.Errorf("subject %q, want %q", got.subject, want)
	}
	if date, err := got.header.Date(); err != nil || time.Since(date).Abs() > time.Minute {
		t.Errorf("date %v, %v", date, err)
	}
	if want := notify.Compose(notifytest.Warning()).Text(); strings.TrimRight(got.text,
		"\n") != strings.TrimRight(want,
		"\n") {
		t.Errorf("text:\n%s\nwant:\n%s", got.text, want)
	}
	notifytest.Golden(t, "warning.html", strings.ReplaceAll(got.html, "><", ">\n<"))
}

func TestGoldenHostileHTML(t *testing.T) {
	s := newServer(t, nil)
	if err := channel(t, config(s)).Send(t.Context(), "ana@example.com", notifytest.Hostile()); err != nil {
		t.Fatal(err)
	}
	notifytest.Golden(t, "hostile.html", strings.ReplaceAll(read(t, s.deliveries()[0].data).html, "><", ">\n<"))
}

// headers are all headers of curfew's mails.
var headers = []string{
	"Auto-Submitted", "Content-Type", "Date", "From", "In-Reply-To", "Message-Id", "Mime-Version", "References",
	"Subject", "To",
}

// tags are the elements of our page.
var tags = regexp.MustCompile(
	`(?s)<!doctype html>|</?(html|body|p|strong|table|tr|th|td|br|pre)( (lang="en"|style="[a-z0-9 :;,.#-]*"))?>`)

// TestNothingIsInjected checks that for any names, the mail only has our headers and elements and
// one recipient.
func TestNothingIsInjected(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{
				"\r\nBcc: eve@evil.example", "\r\n\r\nbody", "\r\n.\r\nMAIL FROM:<x>", "<script>", "</pre><a href=x>",
				"=?utf-8?q?=0D=0AX-Evil:_1?=", "=?utf-8?b?DQo=?=", "\n--boundary", "{{.}}"}))
		m := notifytest.Warning()
		r := *m.Resource
		r.ID, r.Name, r.Owner.Team, r.Owner.User = s.Draw(rt, "id"), s.Draw(rt, "name"), s.Draw(rt, "team"), s.Draw(rt,
			"user")
		m.Resource, m.Because, m.Keep, m.Item, m.Kind = &r, s.Draw(rt, "because"), s.Draw(rt, "keep"), "x"+s.Draw(rt,
			"item"), s.Draw(rt, "kind")
		msg, err := compose("curfew@example.com", "ana@example.com", m)
		if err != nil {
			rt.Fatal(err)
		}
		var b strings.Builder
		if _, err := msg.WriteTo(&b); err != nil {
			rt.Fatal(err)
		}
		got := read(t, b.String())
		names := make([]string, 0, len(headers))
		for name, values := range got.header {
			names = append(names, textproto.CanonicalMIMEHeaderKey(name))
			if len(values) != 1 || strings.ContainsAny(values[0], "\r\n") {
				rt.Fatalf("%s: %q", name, values)
			}
		}
		slices.Sort(names)
		if !slices.Equal(names, headers) {
			rt.Fatalf("headers %q", names)
		}
		if strings.ContainsAny(got.subject, "\r\n") || !strings.HasPrefix(got.subject, "curfew: ") {
			rt.Fatalf("subject %q", got.subject)
		}
		if rest := tags.ReplaceAllString(got.html, ""); strings.ContainsAny(rest, "<>") {
			rt.Fatalf("foreign elements in\n%s", rest)
		}
		if l := notify.Compose(m); l.Keep != "" && !strings.Contains(html.UnescapeString(got.html), l.Keep) {
			rt.Fatalf("the page does not show %q:\n%s", l.Keep, got.html)
		}
	})
}

func TestThreads(t *testing.T) {
	id := func(change func(*action.Message)) (message, thread string) {
		m := notifytest.Warning()
		if change != nil {
			change(&m)
		}
		msg, err := compose("curfew@example.com", "ana@example.com", m)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if _, err := msg.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		got := read(t, b.String())
		if !regexp.MustCompile(`^<[a-z0-9.-]+@example\.com>$`).MatchString(got.header.Get("Message-Id")) {
			t.Errorf("Message-ID %q", got.header.Get("Message-Id"))
		}
		return got.header.Get("Message-Id"), got.header.Get("References")
	}
	first, thread := id(nil)
	for _, tt := range []struct {
		name                  string
		change                func(*action.Message)
		sameMail, sameThreads bool
	}{
		{"the same once more is the same mail", nil, true, true},
		{"a later time is another mail of the thread", func(m *action.Message) {
			m.ActsAt = m.ActsAt.Add(time.Hour)
		}, false, true},
		{"what was done is another mail of the thread", func(m *action.Message) { m.Kind = "acted" }, false, true},
		{"another item is another thread", func(m *action.Message) { m.Item = "other" }, false, false},
		{"without an item there is no thread", func(m *action.Message) { m.Item = "" }, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, references := id(tt.change)
			if (got == first) != tt.sameMail || (references == thread) != tt.sameThreads {
				t.Errorf("Message-ID %s in %s, the first is %s in %s", got, references, first, thread)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name      string
		server    func(*server)
		replies   map[string][]string
		says      string
		temporary bool
	}{
		{
			"the recipient is unknown", nil, map[string][]string{"RCPT": {"550 5.1.1 no such user"}},
			`550 "5.1.1 no such user`, false,
		},
		{"greylisted", nil, map[string][]string{"RCPT": {"450 4.2.0 greylisted"}}, `450 "4.2.0 greylisted`, true},
		{
			"the sender is refused", nil, map[string][]string{"MAIL": {"553 5.7.1 not your address"}}, `553 "5.7.1`,
			false,
		},
		{"the sender is refused for now", nil, map[string][]string{"MAIL": {"451 4.3.0 busy"}}, `451 "4.3.0`, true},
		{"no data", nil, map[string][]string{"DATA": {"554 5.5.1 no"}}, `554 "5.5.1`, false},
		{"spam", nil, map[string][]string{"END": {"554 5.7.1 looks like spam"}}, `554 "5.7.1 looks like spam`, false},
		{"the disk is full", nil, map[string][]string{"END": {"452 4.3.1 no space"}}, `452 "4.3.1`, true},
		{"closed to us", nil, map[string][]string{"CONNECT": {"554 5.7.1 not you"}}, `554 "5.7.1 not you`, false},
		{"shutting down", nil, map[string][]string{"CONNECT": {"421 4.3.2 shutting down"}}, `421 "4.3.2`, true},
		{"a wrong password", func(s *server) {
			s.pass = "another"
		}, nil, "answered 535: the server refuses the user name", false},
		{"authentication is down", nil, map[string][]string{"AUTH": {"454 4.7.0 try later"}}, `454 "4.7.0`, true},
		{"no AUTH at all", func(s *server) { s.extensions = []string{"STARTTLS"} }, nil, "AUTH", false},
		{"no STARTTLS", func(s *server) { s.extensions = []string{"AUTH PLAIN"} }, nil, "STARTTLS", false},
		{"an untrusted certificate", func(s *server) { s.certificate = foreign }, nil, "certificate", false},
		{"broken off at the greeting", nil, map[string][]string{"CONNECT": {"drop"}}, "EOF", true},
		{"broken off at RCPT", nil, map[string][]string{"RCPT": {"drop"}}, "broke off", true},
		{"broken off in the data", nil, map[string][]string{"END": {"drop"}}, "broke off", true},
		{"not SMTP", nil, map[string][]string{"CONNECT": {"HTTP/1.1 400 Bad Request"}}, "HTTP", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, func(s *server) {
				s.replies = tt.replies
				if tt.server != nil {
					tt.server(s)
				}
			})
			err := channel(t, config(s)).Send(t.Context(), "ana@example.com", notifytest.Warning())
			var f *notify.Failure
			if !errors.As(err, &f) {
				t.Fatalf("Send = %v, want a Failure", err)
			}
			if !strings.Contains(f.Why, tt.says) || f.Temporary != tt.temporary || strings.Contains(f.Why, "\n") {
				t.Errorf("Send = %+v, want %q, temporary %v", f, tt.says, tt.temporary)
			}
			if n := len(s.deliveries()); n != 0 {
				t.Errorf("%d mails were taken", n)
			}
		})
	}
}

// TestTakenIsTaken checks that an accepted mail is not sent again if the server then breaks the
// protocol.
func TestTakenIsTaken(t *testing.T) {
	for _, reply := range []string{"drop", "421 4.3.2 shutting down", "500 what?"} {
		s := newServer(t, func(s *server) { s.replies = map[string][]string{"QUIT": {reply}} })
		if err := channel(t, config(s)).Send(t.Context(), "ana@example.com", notifytest.Warning()); err != nil ||
			len(s.deliveries()) != 1 {
			t.Errorf("QUIT answered by %q: %v, %d mails", reply, err, len(s.deliveries()))
		}
	}
}

func TestRetriesOverTheWire(t *testing.T) {
	s := newServer(t, func(s *server) { s.replies = map[string][]string{"RCPT": {"450 4.2.0 greylisted", ""}} })
	r, err := notify.New(config(s), lookup, Open)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Notify(t.Context(), notify.Owner, notifytest.Warning())
	if err != nil || got != "mail:ana@example.com" || s.said("RCPT") != 2 {
		t.Errorf("Notify = %q, %v after %d attempts; want two", got, err, s.said("RCPT"))
	}

	s = newServer(t, func(s *server) { s.replies = map[string][]string{"RCPT": {"550 5.1.1 no such user"}} })
	if r, err = notify.New(config(s), lookup, Open); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Notify(t.Context(), notify.Owner, notifytest.Warning()); err == nil || s.said("RCPT") != 1 {
		t.Errorf("Notify: %v after %d attempts; want one", err, s.said("RCPT"))
	}
}

// TestPasswordNeverShows lets the server repeat the password, plain and in base64, and checks that
// it is never sent over an unencrypted connection.
func TestPasswordNeverShows(t *testing.T) {
	secrets := []string{
		password, "Y29ycmVjdCBob3JzZS9iYXR0ZXJ5K3N0YXBsZQ==", "AGN1cmZldwBjb3JyZWN0IGhvcnNlL2JhdHRlcnkrc3RhcGxl",
		"battery",
	}
	for _, tt := range []struct {
		name   string
		server func(*server)
	}{
		{"a wrong password by PLAIN", func(s *server) { s.pass = "another" }},
		{"a wrong password by LOGIN", func(s *server) {
			s.pass, s.extensions = "another", []string{"STARTTLS", "AUTH LOGIN"}
		}},
		{"repeated later", func(s *server) {
			s.replies = map[string][]string{
				"RCPT": {"550 you said " + password + " and " + secrets[1] + " and " + secrets[2]},
			}
		}},
		{"repeated for good measure", func(s *server) {
			s.replies = map[string][]string{"AUTH": {"454 " + secrets[2]}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, tt.server)
			err := channel(t, config(s)).Send(t.Context(), "ana@example.com", notifytest.Warning())
			if err == nil {
				t.Fatal("accepted")
			}
			for _, secret := range secrets {
				if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
					t.Errorf("the error shows %q: %v", secret, err)
				}
			}
		})
	}
	t.Run("not sent without TLS", func(t *testing.T) {
		s := newServer(t, func(s *server) { s.extensions = []string{"AUTH PLAIN LOGIN"} })
		if err := channel(t, config(s)).Send(t.Context(), "ana@example.com", notifytest.Warning()); err == nil ||
			s.said("AUTH") != 0 {
			t.Errorf("Send: %v after %d AUTH commands", err, s.said("AUTH"))
		}
	})
}

func TestContext(t *testing.T) {
	for _, where := range []string{"CONNECT", "EHLO", "RCPT", "END"} {
		t.Run("canceled at "+where, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := newServer(t, func(s *server) { s.replies, s.hangs = map[string][]string{where: {"hang"}}, cancel })
			began := time.Now()
			err := channel(t, config(s)).Send(ctx, "ana@example.com", notifytest.Warning())
			if took := time.Since(began); !errors.Is(err, context.Canceled) || took > 20*time.Second {
				t.Errorf("Send = %v after %s, want the cancellation", err, took)
			}
		})
	}
	t.Run("late", func(t *testing.T) {
		s := newServer(t, func(s *server) { s.replies = map[string][]string{"RCPT": {"hang"}} })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var f *notify.Failure
		if err := channel(t, config(s)).Send(ctx, "ana@example.com", notifytest.Warning()); !errors.As(err, &f) ||
			!f.Temporary {
			t.Errorf("Send = %v, want a temporary failure", err)
		}
	})
}

func TestNoListener(t *testing.T) {
	s := newServer(t, nil)
	c := config(s)
	s.Close()
	var f *notify.Failure
	if err := channel(t, c).Send(t.Context(), "ana@example.com", notifytest.Warning()); !errors.As(err, &f) ||
		!f.Temporary || !strings.Contains(f.Why, "connection refused") {
		t.Errorf("Send = %v, want a temporary failure", err)
	}
}

func TestOpen(t *testing.T) {
	if _, ch, err := Open(notify.Config{}, lookup); ch != nil || err != nil {
		t.Errorf("Open of no section = %v, %v; want no channel", ch, err)
	}
	c := notify.Config{Mail: notify.Mail{SMTP: "h:25", From: "c@example.com", Username: "u", PasswordEnv: "GONE"}}
	var fe *notify.FieldError
	if _, ch, err := Open(c, lookup); ch != nil || !errors.As(err, &fe) || fe.Path != "mail.password_env" {
		t.Errorf("Open without the password = %v, %v", ch, err)
	}
}

func BenchmarkSend(b *testing.B) {
	s := newServer(b, nil)
	ch, m := channel(b, config(s)), notifytest.Warning()
	b.ReportAllocs()
	for b.Loop() {
		if err := ch.Send(context.Background(), "ana@example.com", m); err != nil {
			b.Fatal(err)
		}
	}
}
