package config

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/document"
)

const people = `notify:
  slack: {token_env: SLACK, users: {bo: U0BOBOBOB}}
  mail: {smtp: "mail.example.com:25", from: curfew@example.com}
approvers: {bo: [approver, finance]}
people:
  ana:
    mail: [ana@example.com]
    oidc: [00u1Ana]
    aws: ["arn:aws:iam::123456789012:user/ana", "arn:aws:sts::123456789012:assumed-role/ana-admin/*"]
    slack: [U012AB3CD]
    github: [ana-k]
    linux: [ak]
    tags: [ana.k]
    roles: [user, approver@vision]
  bo:
    aws: ["arn:aws:sts::123456789012:assumed-role/dev/bo"]
    slack: [U0OTHER00]
    roles: [operator]
`

func decoded(t *testing.T, src string) Config {
	t.Helper()
	c := Default()
	if err := Decode("curfew.yaml", []byte(src), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPersonHasSeveralIdentities checks that each identity of any provider leads to its person, and
// no other does.
func TestPersonHasSeveralIdentities(t *testing.T) {
	c := decoded(t, people)
	aws := func(arn string) string { name, _ := c.AWSName("arn:aws:" + arn); return name }
	oidc := func(subject, mail string) string { name, _ := c.OIDCName(subject, mail); return name }
	named := func(n string) string { name, _ := c.Named(n); return name }
	for what, tc := range map[string]struct{ got, want string }{
		"a user":                            {aws("iam::123456789012:user/ana"), "ana"},
		"any session of a role of one's":    {aws("sts::123456789012:assumed-role/ana-admin/whatever"), "ana"},
		"a role with a longer name":         {aws("sts::123456789012:assumed-role/ana-admin-2/x"), ""},
		"a role of another account":         {aws("sts::999999999999:assumed-role/ana-admin/x"), ""},
		"the named session of a role":       {aws("sts::123456789012:assumed-role/dev/bo"), "bo"},
		"another session of it":             {aws("sts::123456789012:assumed-role/dev/eve"), ""},
		"the pattern itself as an ARN":      {aws("iam::123456789012:user/*"), ""},
		"a subject":                         {oidc("00u1Ana", ""), "ana"},
		"a subject in other letters":        {oidc("00U1ANA", ""), ""},
		"a verified address":                {oidc("other", "Ana@example.com"), "ana"},
		"no verified address":               {oidc("other", ""), ""},
		"a user of the operating system":    {named("ak"), "ana"},
		"the value of an owner tag":         {named("ANA.K"), "ana"},
		"an address in an owner tag":        {named("ana@example.com"), "ana"},
		"the name itself, in other letters": {named("Bo"), "bo"},
		"a person who is not there":         {named("eve"), "eve"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got %q, want %q", what, tc.got, tc.want)
		}
	}
}

// TestMergesRolesOfBothSections checks that roles from approvers and people are combined.
func TestMergesRolesOfBothSections(t *testing.T) {
	c := decoded(t, people)
	got := approval.Roles(c.Holders(), "bo")
	slices.Sort(got)
	if want := []string{"approver", "finance", "operator"}; !slices.Equal(got, want) {
		t.Errorf("bo: got %v, want %v", got, want)
	}
	if got := approval.Approvers(c.Holders(), nil, "vision", "eve"); !slices.Equal(got, []string{"ana", "bo"}) {
		t.Errorf("for vision: %v", got)
	}
	if got := approval.Approvers(c.Holders(), nil, "speech", "eve"); !slices.Equal(got, []string{"bo"}) {
		t.Errorf("for speech: %v", got)
	}
}

// TestPeopleRouteNotifications checks that a tag value leads to the channels of its person, and
// that the notify section takes precedence.
func TestPeopleRouteNotifications(t *testing.T) {
	c := decoded(t, people)
	n := c.Reached()
	if err := n.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{
		"ana.k": {"U012AB3CD", "ana@example.com"}, "ak": {"U012AB3CD", "ana@example.com"}, "bo": {"U0BOBOBOB", ""},
		"eve": {"", ""},
	} {
		if got := [2]string{n.Slack.Users[name], n.Mail.Users[name]}; got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if got := n.Names["ana"]; !slices.Equal(got, []string{"slack:U012AB3CD", "mail:ana@example.com"}) {
		t.Errorf("ana: %v", got)
	}
	if len(c.Notify.Slack.Users) != 1 {
		t.Error("the section itself was changed")
	}
}

// TestPeopleConfigureNoChannel checks that people's addresses do not enable a channel that notify
// does not configure.
func TestPeopleConfigureNoChannel(t *testing.T) {
	c := decoded(t, "people:\n  ana: {mail: [ana@example.com], slack: [U012AB3CD]}\n")
	if n := c.Reached(); n.Slack.Used() || n.Mail.Used() || len(n.Names) > 0 {
		t.Errorf("it reaches %+v", n)
	}
	if n := new(Config).Reached(); n.Slack.Used() || n.Mail.Used() {
		t.Errorf("without people it reaches %+v", n)
	}
}

// TestTwoAccountsOfOnePerson checks that a requester cannot decide with another account, although
// the request contains a different name.
func TestTwoAccountsOfOnePerson(t *testing.T) {
	c := decoded(t, people)
	stored := approval.Person{Name: "ak", Proof: approval.Proof{Kind: approval.SelfDeclared, Subject: "ak"}}
	for _, p := range []approval.Person{stored,
		{
			Name:  "arn:aws:iam::123456789012:user/ana",
			Proof: approval.Proof{Kind: approval.AWSCaller, Subject: "arn:aws:iam::123456789012:user/ana"},
		},
		{Name: "github:ana-k", Proof: approval.Proof{Kind: approval.GitHubReview, Subject: "Ana-K"}},
		{Name: "00u1Ana", Proof: approval.Proof{Kind: approval.OIDC, Subject: "00u1Ana"}},
	} {
		if got := c.Known(p).Name; got != "ana" {
			t.Errorf("%s: known as %q", p.Name, got)
		}
	}
	if got := c.Known(approval.Person{Name: "eve"}).Name; got != "eve" {
		t.Errorf("eve is known as %q", got)
	}
}

func TestMistakesInPeople(t *testing.T) {
	for name, tc := range map[string]struct {
		src          string
		line, column int
		message      string
	}{
		"a role that is none": {"people:\n  ana: {roles: [viewer, aprover]}\n", 2, 25, "approver"},
		"a role in no team":   {"people:\n  ana: {roles: [\"approver@\"]}\n", 2, 17, "none of"},
		"a pattern of a user": {
			"people:\n  ana: {aws: [\"arn:aws:iam::1:user/*\"]}\n", 2, 15, "only the whole name of a session",
		},
		"a part of a session": {
			"people:\n  ana: {aws: [\"arn:aws:sts::1:assumed-role/dev/ana*\"]}\n", 2, 15,
			"only the whole name of a session",
		},
		"any role": {
			"people:\n  ana: {aws: [\"arn:aws:sts::1:assumed-role/*\"]}\n", 2, 15, "only the whole name of a session",
		},
		"every session of two people": {
			"people:\n  ana: {aws: [\"arn:aws:sts::1:assumed-role/dev/*\"]}\n  bo:\n    aws: " +
				"[\"arn:aws:sts::1:assumed-role/dev/bo\"]\n",
			4, 11, "another person's",
		},
		"a tag of two people":  {"people:\n  ana: {tags: [ml]}\n  bo: {tags: [ML]}\n", 2, 3, "is of ana and of bo"},
		"a name that is a tag": {"people:\n  ana: {tags: [bo]}\n  bo: {}\n", 2, 3, "may mean"},
		"no member id":         {"people:\n  ana: {slack: [ana]}\n", 2, 16, "member id"},
		"an unknown key":       {"people:\n  ana: {okta: [x]}\n", 2, 9, "unknown field"},
	} {
		c := Default()
		err := Decode("curfew.yaml", []byte(tc.src), &c)
		var e *document.Error
		if !errors.As(err, &e) || e.Line != tc.line || !strings.Contains(e.Message, tc.message) {
			t.Errorf("%s: got %v, want line %d with %q", name, err, tc.line, tc.message)
			continue
		}
		if e.Column != tc.column {
			t.Errorf("%s: column %d, want %d", name, e.Column, tc.column)
		}
	}
}
