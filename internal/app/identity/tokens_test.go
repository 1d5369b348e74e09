package identity_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/store"
)

const people = `approvals: {accept: [self-declared]}
people:
  ana: {roles: [admin]}
`

func TestTokenNamesItsPersonUntilRevoked(t *testing.T) {
	req := apptest.Request(t, people)
	made, err := identity.CreateToken(t.Context(), req, identity.TokenOptions{
		Name: "ci", Roles: []string{approval.RoleViewer},
	})
	if err != nil {
		t.Fatal(err)
	}
	hash, id, ok := identity.HashToken(made.Secret)
	if !ok || id != made.ID {
		t.Fatalf("the token %s has the id %s", made.ID, id)
	}
	cfg, s, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v, err := s.Callers().Token(t.Context(), hash, apptest.Now)
	if err != nil {
		t.Fatal(err)
	}
	if who := identity.PersonOfToken(req, cfg, v); who.Name != "ci" || !who.Proof.Verified() {
		t.Errorf("the token speaks for %+v", who)
	}
	if _, err := identity.RevokeToken(t.Context(), req, made.ID); err != nil {
		t.Fatal(err)
	}
	all, err := identity.Tokens(t.Context(), req)
	if err != nil || len(all.Tokens) != 1 || all.Tokens[0].State != "revoked" {
		t.Errorf("got %+v, %v, want one that is revoked", all.Tokens, err)
	}
}

// TestSessionEndsWithItsPerson checks that a person who signed in has no role once people names them no more,
// while a program of the same roles keeps them.
func TestSessionEndsWithItsPerson(t *testing.T) {
	req := apptest.Request(t, people)
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	signedIn := approval.Proof{Kind: approval.OIDC, Subject: "0042", Detail: "verified by https://id.example.com"}
	tokens := []store.Token{
		{Name: "bo", Roles: []string{approval.RoleAdmin}, CreatedBy: signedIn.String()},
		{Name: "ana", Roles: []string{approval.RoleAdmin}, CreatedBy: signedIn.String()},
		{Name: "ci", Roles: []string{approval.RoleOperator}, CreatedBy: "ana"},
	}
	for i := range tokens {
		tokens[i].CreatedAt, tokens[i].ExpiresAt = apptest.Now, apptest.Now.Add(time.Hour)
	}
	for i, want := range [][]string{nil, {approval.RoleAdmin}, {approval.RoleOperator}} {
		if who := identity.PersonOfToken(req, cfg, tokens[i]); !slices.Equal(who.Roles, want) {
			t.Errorf("%s has the roles %q, want %q", who.Name, who.Roles, want)
		}
		if roles, known := identity.RolesNow(req, cfg, tokens, tokens[i].Name, apptest.Now); !known ||
			!slices.Equal(roles, want) {
			t.Errorf("%s has the roles %q now, known %t, want %q", tokens[i].Name, roles, known, want)
		}
	}
	if roles, known := identity.RolesNow(req, cfg, tokens, "ci", apptest.Now.Add(time.Hour)); !known || len(roles) > 0 {
		t.Errorf("an expired token has the roles %q, known %t", roles, known)
	}
	if _, known := identity.RolesNow(req, cfg, tokens, "root", apptest.Now); known {
		t.Error("a name without any record is known")
	}
}

func TestTokenNeedsARole(t *testing.T) {
	_, err := identity.CreateToken(t.Context(), apptest.Request(t, people), identity.TokenOptions{Name: "ci"})
	var f *runtime.Error
	if !errors.As(err, &f) || f.Class != runtime.Usage {
		t.Errorf("got %v, want a usage error", err)
	}
}

func TestServiceVerifiesCaller(t *testing.T) {
	req := apptest.Request(t, people)
	cfg, err := req.Config()
	if err != nil {
		t.Fatal(err)
	}
	req.Caller = runtime.ServedCaller(approval.Person{Name: "bo", Proof: approval.Proof{Kind: approval.SelfDeclared}})
	_, err = identity.SignedIn(t.Context(), req, cfg, "test")
	var f *runtime.Error
	if !errors.As(err, &f) || f.Code != "not_verified" {
		t.Errorf("got %v, want not_verified", err)
	}
	req.Caller = runtime.ServedCaller(approval.Person{
		Name: "bo", Proof: approval.Proof{Kind: approval.Token, Subject: "bo"},
	})
	if who, err := identity.SignedIn(t.Context(), req, cfg, "test"); err != nil || who.Name != "bo" {
		t.Errorf("got %q, %v, want bo", who.Name, err)
	}
}
