package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/view"
)

// Declared is who gives the command by a self-declared name.
func (rt *Runtime) Declared(cfg config.Config) (approval.Person, error) {
	if who, served := rt.Caller.Served(); served {
		return who, nil
	}
	name, err := rt.Person(cfg)
	if err != nil {
		return approval.Person{}, err
	}
	subject := name
	name, known := cfg.Named(name)
	for _, of := range cfg.GitHub.Identities {
		known = known || of == name
	}
	return approval.Person{Name: name, Roles: approval.Roles(cfg.Holders(), name), Proof: approval.Proof{Kind: approval.SelfDeclared, Subject: subject, Mapped: known}}, nil
}

// SignedIn is who gives the command by the AWS credentials of the profile, proven for a
// binding.
func (rt *Runtime) SignedIn(ctx context.Context, cfg config.Config, binding string) (approval.Person, error) {
	if who, served := rt.Caller.Served(); served {
		return verifiedCaller(who)
	}
	signed, err := rt.SignCall(ctx, cfg, "", binding)
	if err != nil {
		return approval.Person{}, err
	}
	return rt.callerOf(ctx, cfg, signed, binding)
}

// SignCall presigns a call that proves the AWS identity of a profile for a binding; an empty
// profile is the configured one.
func (rt *Runtime) SignCall(ctx context.Context, cfg config.Config, profile, binding string) (string, error) {
	region := ""
	if len(cfg.AWS.Regions) > 0 && cfg.AWS.Regions[0] != "all" {
		region = cfg.AWS.Regions[0]
	}
	return rt.caller(cfg).Sign(ctx, cmp.Or(profile, cfg.AWS.Profile), region, binding)
}

// callerOf is who signed for a binding, by the word of STS and the names of the
// configuration.
func (rt *Runtime) callerOf(ctx context.Context, cfg config.Config, signed, binding string) (approval.Person, error) {
	id, err := rt.caller(cfg).Verify(ctx, signed, binding)
	if err != nil {
		return approval.Person{}, err
	}
	return awsPerson(cfg, id.ARN, id.Host, signed), nil
}

func awsPerson(cfg config.Config, arn, host, signed string) approval.Person {
	name, known := cfg.AWSName(arn)
	detail := "verified by " + host
	if cfg.Approvals.STSEndpoint != "" {
		detail += " (approvals.sts_endpoint, a sandbox)"
	}
	name = cmp.Or(name, arn)
	return approval.Person{Name: name, Roles: approval.Roles(cfg.Holders(), name), Proof: approval.Proof{Kind: approval.AWSCaller, Subject: arn, Detail: detail, Mapped: known, Signed: signed}}
}

// binding is what an approver signs: one decision about one request for one plan.
func binding(r approval.Request) string {
	return strings.Join([]string{"curfew.approval/v1", r.ID, r.PlanHash, r.Amount.String(), "approve"}, "\n")
}

// Checked is the check of proofs at the time of their use. Self-declared names count
// only where declared says so. actor is who carries it out; nil: whoever asked.
func (rt *Runtime) Checked(cfg config.Config, declared bool, actor *approval.Person) func(context.Context, approval.Request) error {
	return func(ctx context.Context, r approval.Request) error {
		refuse := func(format string, args ...any) error {
			return &approval.Refusal{Rule: approval.RuleProof, Why: fmt.Sprintf("the approval %s by %s does not count: ", r.ID, r.DecidedBy) + fmt.Sprintf(format, args...)}
		}
		var by approval.Person
		switch {
		case r.Proof.Kind == approval.AWSCaller:
			var err error
			if by, err = rt.signer(ctx, cfg, r); err != nil {
				return refuse("%v; approve it again, and run this within %s of that", err, approval.ProofAge)
			}
		case r.Proof.Kind == approval.Token || r.Proof.Kind == approval.OIDC:
			var err error
			if by, err = rt.vouched(cfg, r); err != nil {
				return refuse("%v", err)
			}
		case r.Proof.Kind == approval.GitHubReview && rt.Reviewed(r.ID):
			return nil
		case r.Proof.Kind == approval.GitHubReview && !declared:
			return refuse("this run did not find its review; run it with --github in a workflow of the pull request, or approve with AWS credentials")
		case !declared:
			return refuse("its identity is %s; approve with AWS credentials, or set approvals.accept: [self-declared]", r.Proof)
		default:
			return nil
		}
		others := []approval.Person{r.Asker()}
		if actor != nil {
			others = append(others, *actor)
		}
		for _, other := range others {
			if why := approval.One(by, cfg.Known(other)); why != "" {
				return refuse("%s", why)
			}
		}
		if !approval.May(by.Roles, r.Roles, r.Team) {
			return refuse("%s has none of the roles %s here", by.Name, strings.Join(r.Roles, ", "))
		}
		return nil
	}
}

// signer is who signed an approval, by the word of STS now, or at an earlier run of this
// user of which a receipt is kept: a proof is fresh for 15 minutes, a grace may be longer.
func (rt *Runtime) signer(ctx context.Context, cfg config.Config, r approval.Request) (approval.Person, error) {
	sum := sha256.Sum256([]byte(binding(r) + "\n" + r.Proof.Signed))
	receipt := filepath.Join(cfg.DataDir, "proofs", hex.EncodeToString(sum[:]))
	if cfg.DataDir != "" && r.Proof.Signed != "" {
		if arn, err := os.ReadFile(receipt); err == nil && strings.HasPrefix(string(arn), "arn:") {
			return awsPerson(cfg, string(arn), "STS before", r.Proof.Signed), nil
		}
	}
	by, err := rt.callerOf(ctx, cfg, r.Proof.Signed, binding(r))
	if err != nil || cfg.DataDir == "" {
		return by, err
	}
	if err := os.MkdirAll(filepath.Dir(receipt), 0o700); err == nil {
		err = os.WriteFile(receipt, []byte(by.Proof.Subject), 0o600)
		if err != nil {
			return by, fmt.Errorf("keep the receipt of a proof: %w", err)
		}
	}
	return by, nil
}

// FixKind is the Kind of the requests of fixes.
const FixKind = "fix"

// PeopleHere is the configuration with the roles and identities that count; a state that is
// a file is not made for it.
func (rt *Runtime) PeopleHere(ctx context.Context, cfg config.Config) (config.Config, view.Decider, error) {
	if !rt.Storage.Exists(cfg) {
		return cfg, view.Decider{Source: "local", Hash: cfg.SharedHash(), Advisory: true}, nil
	}
	s, err := rt.Open(ctx, cfg)
	if err != nil {
		return cfg, view.Decider{}, err
	}
	defer s.Close()
	return rt.People(ctx, cfg, s)
}

// Approver is who decides a request, with the proof that its kind needs.
func (rt *Runtime) Approver(ctx context.Context, cfg config.Config, r approval.Request, proof string, allow bool) (approval.Person, error) {
	needs := r.Kind == FixKind && !cfg.Approvals.Accepts(approval.SelfDeclared)
	if who, served := rt.Caller.Served(); served {
		return rt.callerDecides(cfg, who, r, allow && needs)
	}
	if proof == "aws" || proof == "auto" && allow && needs {
		who, err := rt.SignedIn(ctx, cfg, binding(r))
		switch {
		case err == nil:
			return who, nil
		case errors.Is(err, errNoCredentials):
			return who, &Error{Class: Denied, Code: "not_approved", Err: fmt.Errorf("request %s needs a verified identity: %w", r.ID, err),
				Hint: "sign in to AWS as yourself, or set approvals.accept: [self-declared]; `curfew whoami` shows who you are"}
		}
		return who, &Error{Class: Denied, Code: "not_approved", Err: fmt.Errorf("request %s needs a verified identity: %w", r.ID, err), Hint: "`curfew whoami` shows who you are"}
	}
	if allow && needs {
		return approval.Person{}, &Error{Class: Denied, Code: "not_approved", Err: fmt.Errorf("request %s needs a verified identity, and a name is self-declared", r.ID),
			Hint: "approve with AWS credentials, or set approvals.accept: [self-declared]"}
	}
	return rt.Declared(cfg)
}
