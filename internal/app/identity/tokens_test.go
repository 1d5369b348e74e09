package identity_test

import (
	"errors"
	"testing"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
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
