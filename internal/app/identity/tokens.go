package identity

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// verifiedCaller refuses a caller of a service with a self-declared identity.
func verifiedCaller(who approval.Person) (approval.Person, error) {
	if !who.Proof.Verified() {
		return who, &runtime.Error{
			Class: runtime.Denied, Code: "not_verified",
			Err:  fmt.Errorf("the identity of %s is self-declared", who.Name),
			Hint: "sign in with a token, the sign-in provider or AWS credentials"}
	}
	return who, nil
}

// decider returns the caller as the person who decides a request. The service vouches for the
// proof, so that whoever carries out the request can verify it.
func decider(req *runtime.Request, cfg config.Config, who approval.Person, r approval.Request,
	needs bool) (approval.Person, error) {
	if !who.Proof.Verified() {
		if needs {
			return verifiedCaller(who)
		}
		return who, nil
	}
	key, err := SigningKey(req, cfg)
	if err != nil {
		return who, err
	}
	who.Proof.Signed = base64.StdEncoding.EncodeToString(ed25519.Sign(key, voucherText(r, who)))
	return who, nil
}

// voucherText returns the text that a service signs: the person who made one decision about one
// request for one plan, and how the service verified their identity.
func voucherText(r approval.Request, who approval.Person) []byte {
	return []byte(strings.Join([]string{
		"curfew.vouch/v1", approvalBinding(r), who.Name, string(who.Proof.Kind), who.Proof.Subject,
	}, "\n"))
}

// verifyVoucher returns the person who approved a request at a service, by the signature of the
// service and the person's current roles.
func verifyVoucher(req *runtime.Request, cfg config.Config, r approval.Request) (approval.Person, error) {
	by := r.Decider()
	key, err := VerifyingKey(req, cfg)
	if err != nil {
		return by, err
	}
	signed, err := base64.StdEncoding.DecodeString(r.Proof.Signed)
	if err != nil || !ed25519.Verify(key, voucherText(r, by), signed) {
		return by, errors.New("no service of this state vouches for it; audit.public_key names the key of the service")
	}
	by.Roles = approval.Roles(cfg.Holders(), by.Name)
	return cfg.Known(by), nil
}

// TokenPrefix begins every token, so that secret scanners recognize it.
const TokenPrefix = "curfew_"

// Limits of tokens.
const (
	tokenShown  = 8 // number of characters after the prefix that form the id
	TokenLength = 90 * 24 * time.Hour
	tokenMost   = 366 * 24 * time.Hour
)

// HashToken returns the SHA-256 of a token and its id; ok is false if it is not a token.
func HashToken(token string) (hash, id string, ok bool) {
	secret, ok := strings.CutPrefix(token, TokenPrefix)
	if raw, err := hex.DecodeString(secret); !ok || err != nil || len(raw) != 32 {
		return "", "", false
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:]), strings.ToLower(secret[:tokenShown]), true
}

// newToken generates a token of 256 random bits.
func newToken() (string, error) {
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return TokenPrefix + hex.EncodeToString(raw), nil
}

// TokenOptions describe a new token.
type TokenOptions struct {
	// Name is the person or program that uses it; Roles limit what it may do.
	Name  string
	Roles []string
	// For is how long it is valid, as a duration; empty is 90 days.
	For string
}

// Check returns an error for an incomplete token.
func (o TokenOptions) Check() error {
	switch {
	case strings.TrimSpace(o.Name) == "":
		return runtime.Invalid("give a name: the person or program of the token")
	case len(o.Roles) == 0:
		return runtime.Invalid("give at least one role: %s", strings.Join(approval.ServiceRoles, ", "))
	}
	return nil
}

// CreateToken creates a token and returns it, once.
func CreateToken(ctx context.Context, req *runtime.Request, o TokenOptions) (view.NewToken, error) {
	var none view.NewToken
	cfg, by, s, err := req.InForce(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	who, err := tokenAdmin(ctx, req, cfg, by)
	if err != nil {
		return none, err
	}
	now, err := req.InTime(ctx, s)
	if err != nil {
		return none, err
	}
	length := TokenLength
	if o.For != "" {
		if length, err = config.ParseDuration(o.For); err != nil || length <= 0 || length > tokenMost {
			return none, runtime.Invalid("--for %q: it is a duration of at most 366 days, such as 30d", o.For)
		}
	}
	if err := o.Check(); err != nil {
		return none, err
	}
	if err := approval.Nameable(o.Name); err != nil {
		return none, runtime.Invalid("the name of a token: %w", err)
	}
	name, _ := cfg.Named(o.Name)
	for _, role := range o.Roles {
		what, team := approval.SplitRole(role)
		switch decides := what == approval.RoleApprover || !slices.Contains(approval.ServiceRoles, what); {
		case what == "" || role != what && team == "":
			return none, runtime.Invalid("--role %q: it is a role, alone or with a team such as approver@vision", role)
		case !decides:
		case !slices.Contains(approval.ServiceRoles, what) && !slices.ContainsFunc(approval.Roles(cfg.Holders(), name),
			func(has string) bool { return has == role }):
			return none, runtime.Invalid("--role %q: it is none of %s, and approvers gives it to no one of that name",
				role,
				strings.Join(approval.ServiceRoles, ", "))
		case !approval.Same(cfg.Known(who).Name, name) || !who.Proof.Verified() &&
			!cfg.Approvals.Accepts(approval.SelfDeclared):
			return none, &runtime.Error{
				Class: runtime.Denied, Code: "not_yours",
				Err: fmt.Errorf(
					"a token that decides requests (%s) speaks for %s, and only %s creates it, by a verified identity",
					role, name,
					name),
				Hint: "sign in to AWS or to the service as that person, or leave the role out"}
		}
	}
	text, err := newToken()
	if err != nil {
		return none, err
	}
	hash, id, _ := HashToken(text)
	v := store.Token{
		ID: id, Hash: hash, Name: name, Roles: o.Roles, CreatedBy: who.Name, CreatedAt: now,
		ExpiresAt: now.Add(length),
	}
	if err := s.Callers().Create(ctx, v,
		tokenEntry(v, now, who.Name, "created, expires "+v.ExpiresAt.UTC().Format(time.RFC3339))); err != nil {
		return none, err
	}
	return view.NewToken{Schema: view.NewTokenSchema, Token: newTokenDoc(v, now), Secret: text}, nil
}

// tokenAdmin returns the person who may create and revoke tokens: an admin if there are shared
// settings, otherwise the owner of the state.
func tokenAdmin(ctx context.Context, req *runtime.Request, cfg config.Config, by view.Decider) (approval.Person,
	error) {
	if _, served := req.Caller.Served(); served || by.Advisory {
		if !served && !cfg.Approvals.Accepts(approval.SelfDeclared) {
			if who, err := SignedIn(ctx, req, cfg, "curfew token"); err == nil {
				return who, nil
			}
		}
		return req.Declared(cfg)
	}
	return Admin(ctx, req, cfg, config.Shared{
		Approvers: cfg.Approvers, People: cfg.People, Approvals: cfg.Approvals, GitHub: cfg.GitHub,
	}, "token")
}

func tokenEntry(v store.Token, now time.Time, who, outcome string) action.Entry {
	return action.Entry{
		At: now, Actor: who, What: action.EventToken,
		Because: "token " + v.ID + " of " + v.Name + ": " + strings.Join(v.Roles, ", "), Outcome: outcome,
	}
}

func newTokenDoc(v store.Token, now time.Time) view.Token {
	return view.NewTokenDoc(view.Token{ID: v.ID, Name: v.Name, Roles: v.Roles, CreatedBy: v.CreatedBy}, v.CreatedAt,
		v.ExpiresAt, v.UsedAt, v.RevokedAt, now)
}

// Tokens returns all tokens, newest first.
func Tokens(ctx context.Context, req *runtime.Request) (view.Tokens, error) {
	doc := view.Tokens{Schema: view.TokensSchema, Tokens: []view.Token{}}
	_, s, err := req.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	all, err := s.Callers().Tokens(ctx)
	if err != nil {
		return doc, err
	}
	now, err := req.StateTime(ctx, s)
	for _, v := range all {
		doc.Tokens = append(doc.Tokens, newTokenDoc(v, now))
	}
	return doc, err
}

// RevokeToken revokes a token, by its id or a prefix of it.
func RevokeToken(ctx context.Context, req *runtime.Request, id string) (view.OneToken, error) {
	var none view.OneToken
	cfg, by, s, err := req.InForce(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	who, err := tokenAdmin(ctx, req, cfg, by)
	if err != nil {
		return none, err
	}
	now, err := req.StateTime(ctx, s)
	if err != nil {
		return none, err
	}
	v, err := s.Callers().Revoke(ctx, id, now, func(v store.Token) action.Entry {
		return tokenEntry(v, now, who.Name, "revoked")
	})
	if errors.Is(err, store.ErrNoToken) {
		return none, &runtime.Error{
			Code: "not_found", Err: fmt.Errorf("there is no token whose id begins with %q", id),
			Hint: "`curfew token list` lists them",
		}
	}
	if err != nil {
		return none, err
	}
	return view.OneToken{Schema: view.TokenSchema, Token: newTokenDoc(v, now)}, nil
}

// PersonOfToken returns the person or program of a token with its effective roles: those of the
// token, limited to those that people and approvers give the person now. A name in neither is a
// program: its token has its own roles, and decides no requests. A person who signed in and is in
// neither any more has no roles.
func PersonOfToken(req *runtime.Request, cfg config.Config, v store.Token) approval.Person {
	name, known := cfg.Named(v.Name)
	p := approval.Person{
		Name:  name,
		Proof: approval.Proof{Kind: approval.Token, Subject: v.ID, Detail: "verified by the service", Mapped: known},
	}
	if held := approval.Roles(cfg.Holders(), name); known || len(held) > 0 {
		p.Roles = approval.Within(held, v.Roles)
		return p
	}
	if signedIn(v) {
		return p
	}
	for _, role := range v.Roles {
		if what, _ := approval.SplitRole(role); what != approval.RoleApprover &&
			slices.Contains(approval.ServiceRoles, what) {
			p.Roles = append(p.Roles, role)
		}
	}
	return p
}

// signedIn reports whether a token is the session of a person who signed in.
func signedIn(v store.Token) bool { return strings.HasPrefix(v.CreatedBy, string(approval.OIDC)+" ") }

// RolesNow returns the roles that a name has now: those that people and approvers give it, else those of
// its valid tokens. Known is false for a name that none of them has ever had, such as that of the user
// of this machine.
func RolesNow(req *runtime.Request, cfg config.Config, tokens []store.Token, name string, now time.Time) (
	roles []string, known bool) {
	name, known = cfg.Named(name)
	if roles = approval.Roles(cfg.Holders(), name); known || len(roles) > 0 {
		return roles, true
	}
	for _, v := range tokens {
		if !approval.Same(v.Name, name) {
			continue
		}
		known = true
		if v.Valid(now) {
			roles = append(roles, PersonOfToken(req, cfg, v).Roles...)
		}
	}
	return roles, known
}

// PersonOfSignIn returns the person that the sign-in provider vouches for; one who is not in people
// has no role.
func PersonOfSignIn(req *runtime.Request, cfg config.Config, issuer, subject, verifiedMail string) approval.Person {
	name, known := cfg.OIDCName(subject, verifiedMail)
	if !known {
		name = subject
	}
	p := approval.Person{
		Name:  name,
		Proof: approval.Proof{Kind: approval.OIDC, Subject: subject, Detail: "verified by " + issuer, Mapped: known},
	}
	if known {
		p.Roles = approval.Roles(cfg.Holders(), name)
	}
	return p
}

// StartSession creates a token for a person who has signed in, with their roles, and records the
// sign-in. Every sign-in has a new token.
func StartSession(ctx context.Context, req *runtime.Request, who approval.Person, length time.Duration) (string,
	error) {
	_, s, err := req.State(ctx)
	if err != nil {
		return "", err
	}
	defer s.Close()
	text, err := newToken()
	if err != nil {
		return "", err
	}
	hash, id, _ := HashToken(text)
	now := req.Now().UTC()
	v := store.Token{
		ID: id, Hash: hash, Name: who.Name, Roles: who.Roles, CreatedBy: who.Proof.String(), CreatedAt: now,
		ExpiresAt: now.Add(length),
	}
	return text, s.Callers().Create(ctx, v, tokenEntry(v, now, who.Name, "signed in by "+who.Proof.String()))
}

// EndSession revokes the token of a session. It ignores other texts.
func EndSession(ctx context.Context, req *runtime.Request, token string) error {
	hash, _, ok := HashToken(token)
	if !ok {
		return nil
	}
	_, s, err := req.State(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	now := req.Now().UTC()
	v, err := s.Callers().Token(ctx, hash, now)
	if err == nil {
		_, err = s.Callers().Revoke(ctx, v.ID, now, func(v store.Token) action.Entry {
			return tokenEntry(v, now, v.Name, "signed out")
		})
	}
	if errors.Is(err, store.ErrNoToken) {
		return nil
	}
	return err
}

// SignedCall returns the identity that presigned a call of GetCallerIdentity for a binding, as
// reported by STS. The proof can be used once, and is at most maxAge old.
func SignedCall(ctx context.Context, req *runtime.Request, signed, binding string, maxAge time.Duration) (
	approval.Person, error) {
	cfg, _, err := PeopleInForce(ctx, req)
	if err != nil {
		return approval.Person{}, err
	}
	_, s, err := req.State(ctx)
	if err != nil {
		return approval.Person{}, err
	}
	defer s.Close()
	now := req.Now().UTC()
	c := clouds.AWSCaller(req, cfg)
	c.MaxAge = maxAge
	id, err := c.Verify(ctx, signed, binding)
	if err != nil {
		return approval.Person{}, &runtime.Error{
			Class: runtime.Denied, Code: "not_verified", Err: err,
			Hint: "presign the call again: it is for one request, within " + maxAge.String(),
		}
	}
	sum := sha256.Sum256([]byte(signed))
	if err := s.Callers().UseProof(ctx, hex.EncodeToString(sum[:]), now, now.Add(-time.Hour)); err != nil {
		if errors.Is(err, store.ErrUsedProof) {
			err = &runtime.Error{
				Class: runtime.Denied, Code: "not_verified", Err: err, Hint: "presign a call for each request",
			}
		}
		return approval.Person{}, err
	}
	p := awsPerson(cfg, id.ARN, id.Host, "")
	if !p.Proof.Mapped {
		p.Roles = nil
	}
	return p, nil
}

// Whoami returns the caller, the proof of their identity, and the requests that they may approve.
func Whoami(ctx context.Context, req *runtime.Request) (view.Whoami, error) {
	cfg, err := req.Config()
	if err != nil {
		return view.Whoami{}, err
	}
	cfg, by, err := PeopleHere(ctx, req, cfg)
	if err != nil {
		return view.Whoami{}, err
	}
	declared, err := req.Declared(cfg)
	if err != nil {
		return view.Whoami{}, err
	}
	who, failed := SignedIn(ctx, req, cfg, "curfew whoami")
	if failed != nil {
		who = declared
	}
	doc := view.Whoami{
		Schema: view.WhoamiSchema, Name: who.Name, Declared: declared.Name, Proof: string(who.Proof.Kind),
		Verified: who.Proof.Verified(),
		Subject:  who.Proof.Subject, VerifiedBy: who.Proof.Detail, InPeople: who.Proof.Mapped,
		Roles:      append([]string{}, who.Roles...),
		OpensFixes: cfg.Approvals.Accepts(who.Proof.Kind), Settings: by}
	if failed != nil {
		why := failed.Error()
		doc.UnverifiedBecause = &why
	}
	return doc, nil
}
