package action

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/usage"
)

// The secrets of these tests are made up, and put together here so that no scanner
// takes them for real ones.
var (
	accessKey = "AKIA" + "IOSFODNN7EXAMPLE"
	secret40  = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
	slackKey  = "xoxb" + "-123456789012-abcdefGHIJKL"
	githubKey = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"
	webToken  = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJhbmEifQ.c2lnbmF0dXJl"
)

func TestRedact(t *testing.T) {
	for _, tc := range []struct{ name, in, secret string }{
		{"password of a URL", "dial postgres://curfew:hunter22@db:5432/x: refused", "hunter22"},
		{"token of a URL", "get https://" + githubKey + "@github.com/x: 404", githubKey},
		{"signed URL", "https://b.s3.amazonaws.com/k?X-Amz-Signature=0f3a9bc1&x=1", "0f3a9bc1"},
		{"session token in a query", "?X-Amz-Security-Token=IQoJb3JpZ2lu&y=2", "IQoJb3JpZ2lu"},
		{"bearer", "Authorization: Bearer abc.def-ghi_jkl", "abc.def"},
		{"basic", `headers {"authorization": "Basic YW5hOmh1bnRlcg=="}`, "YW5hOmh1"},
		{"a bearer alone", "sent Bearer abcdefgh12345", "abcdefgh12345"},
		{"header of a key", "X-Api-Key: k3y-v4lue", "k3y-v4lue"},
		{"cookie", "Cookie: session=deadbeef; a=b", "deadbeef"},
		{"assignment", "password=hunter22 user=ana", "hunter22"},
		{"assignment in quotes", `password="hunter 22" user=ana`, "hunter 22"},
		{"document", `{"client_secret": "s3cr3t", "id": 1}`, "s3cr3t"},
		{"environment", "AWS_SECRET_ACCESS_KEY=" + secret40, secret40},
		{"access key", "credentials of " + accessKey + " are not valid", accessKey},
		{"secret key without a name", "signed with " + secret40 + " at", secret40},
		{"chat token", "post as " + slackKey, slackKey},
		{"incoming webhook", "post https://hooks.slack.com/services/T0/B0/XyZ: 403", "T0/B0/XyZ"},
		{"repository token", "token " + githubKey, githubKey},
		{"web token", "claims of " + webToken, webToken},
		{"private key", "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----\nrest", "MIIabc"},
		{"private key cut off", "-----BEGIN PRIVATE KEY-----\nMIIabc", "MIIabc"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Redact(tc.in); strings.Contains(got, tc.secret) || !strings.Contains(got, redactedText) {
				t.Errorf("Redact(%q) = %q", tc.in, got)
			}
		})
	}
	for _, plain := range []string{
		"terminate i-0abc in aws/123456789012/us-east-1: UnauthorizedOperation",
		"idle: 0% compute and nothing held for 6d 4h",
		"snapshot, key 98060b5d3d2e5e1b-12-0",
		"digest 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12 of s3://bucket/runs/42",
		"all actions are frozen by ana since 2026-11-21 12:00 UTC: an incident",
		"curfew keep i-0abc --for 24h --reason TEXT",
	} {
		if got := Redact(plain); got != plain {
			t.Errorf("Redact(%q) = %q, want it as it is", plain, got)
		}
	}
}

// TestHintsMatchAllSecrets: looking for signs first finds what the expressions alone do.
func TestHintsMatchAllSecrets(t *testing.T) {
	secretKey := regexp.MustCompile(`[A-Za-z0-9/+]{40,}`)
	slowly := func(s string) string {
		for _, x := range secretPatterns() {
			s = x.ReplaceAllString(s, x.replacement)
		}
		return secretKey.ReplaceAllStringFunc(s, func(v string) string {
			if len(v) == 40 && hasMixedCharacters(v) {
				return redactedText
			}
			return v
		})
	}
	fragments := []string{
		"=", ":", "@", " ", "-", "_", ".", "\"", "u", "K", "ſ", "hunter22ABCDEFGH", accessKey, secret40, slackKey,
		githubKey, webToken, "PRIVATE KEY-----",
	}
	for _, x := range secretPatterns() {
		fragments = append(fragments, x.hints...)
	}
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		for range rapid.IntRange(1, 12).Draw(t, "fragments") {
			s := rapid.SampledFrom(fragments).Draw(t, "fragment")
			switch rapid.IntRange(0, 3).Draw(t, "as") {
			case 0:
				s = strings.ToUpper(s)
			case 1:
				s = strings.NewReplacer("k", "K", "s", "ſ").Replace(s)
			}
			text.WriteString(s)
		}
		want := slowly(text.String())
		if got := Redact(text.String()); got != want {
			t.Fatalf("Redact(%q) = %q, want %q", text.String(), got, want)
		}
		if want != text.String() {
			found++
		}
	})
	if found == 0 {
		t.Error("no text held a secret: the test says nothing")
	}
}

func TestRedactsEntries(t *testing.T) {
	e := Entry{
		Because: "password=hunter22", Outcome: "token: hunter22",
		Evidence: []usage.Evidence{usage.Fact("tag", "secret=hunter22", "x")},
	}
	got := e.redacted()
	if text := got.Because + got.Outcome + got.Evidence[0].Value; strings.Contains(text, "hunter22") {
		t.Errorf("the entry shows a secret: %s", text)
	}
	if e.Evidence[0].Value != "secret=hunter22" {
		t.Error("the evidence of others was changed")
	}
}

// FuzzRedact: what is redacted stays as it is, and no secret survives, whatever
// stands around it.
func FuzzRedact(f *testing.F) {
	f.Add("dial ", ": refused")
	f.Add("https://x/", "&y=2")
	f.Add("-----BEGIN PRIVATE KEY-----", "\n")
	f.Fuzz(func(t *testing.T, before, after string) {
		once := Redact(before)
		if twice := Redact(once); twice != once {
			t.Errorf("Redact(%q) = %q, and once more %q", before, once, twice)
		}
		for _, s := range []string{
			"password=hunter22ABC", "Authorization: Bearer hunter22ABC", "postgres://u:hunter22ABC@h",
		} {
			if got := Redact(before + " " + s + " " + after); strings.Contains(got, "hunter22ABC") &&
				!strings.Contains(before, "hunter22ABC") && !strings.Contains(after, "hunter22ABC") {
				t.Errorf("%q between %q and %q gave %q", s, before, after, got)
			}
		}
	})
}

func TestJumped(t *testing.T) {
	last := Clock{Wall: at, Boot: "a", Uptime: time.Hour}
	for _, tc := range []struct {
		name         string
		wall, uptime time.Duration
		boot         string
		want         bool
	}{
		{"time passes", time.Hour, time.Hour, "a", false},
		{"no time passes", 0, 0, "a", false},
		{"a slewed clock", time.Hour + 59*time.Second, time.Hour, "a", false},
		{"set ahead", time.Hour + 61*time.Second, time.Hour, "a", true},
		{"set back", time.Hour, time.Hour + 61*time.Second, "a", true},
		{"backwards", -time.Second, time.Second, "a", true},
		{"backwards on another machine, by a little", -time.Second, 0, "b", false},
		{"backwards on another machine, by as much as clocks differ", -time.Minute, 0, "b", false},
		{"backwards on another machine", -2 * time.Minute, 0, "b", true},
		{"another boot", time.Hour, -time.Minute, "b", false},
		{"a pause as long as allowed", 2 * time.Hour, 2 * time.Hour, "a", false},
		{"a longer pause", 2*time.Hour + 1, 2*time.Hour + 1, "a", true},
		{"a longer pause and another boot", 25 * time.Hour, 0, "b", true},
		{"no boot is known", time.Hour, 0, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := Clock{Wall: at.Add(tc.wall), Boot: tc.boot, Uptime: last.Uptime + tc.uptime}
			if got := clockJumped(last, now, DefaultMaxRoundGap); got != tc.want {
				t.Errorf("jumped = %t, want %t", got, tc.want)
			}
		})
	}
}

// TestItemIDsAreUnique checks that no two rounds begin the same item.
func TestItemIDsAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := allowed()
		a, b := rapid.Int64Range(1, 1000).Draw(t, "round"), rapid.Int64Range(1, 1000).Draw(t, "another")
		x, _ := Advance(Item{Account: "aws/1"}, &p, Round{Number: a, Now: at})
		y, _ := Advance(Item{Account: "aws/1"}, &p, Round{Number: b, Now: at})
		if (x.ID == y.ID) != (a == b) {
			t.Fatalf("rounds %d and %d: %s and %s", a, b, x.ID, y.ID)
		}
	})
}
