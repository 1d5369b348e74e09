package identity

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
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/durable"
)

// SignedIn returns the caller identified by the AWS credentials of the profile, with a proof for a
// binding.
func SignedIn(ctx context.Context, req *runtime.Request, cfg config.Config, binding string) (approval.Person, error) {
	if who, served := req.Caller.Served(); served {
		return verifiedCaller(who)
	}
	signed, err := SignCall(ctx, req, cfg, "", binding)
	if err != nil {
		return approval.Person{}, err
	}
	return verifyCaller(ctx, req, cfg, signed, binding)
}

// SignCall presigns a call that proves the AWS identity of a profile for a binding; an empty
// profile is the configured one.
func SignCall(ctx context.Context, req *runtime.Request, cfg config.Config, profile, binding string) (string, error) {
	region := ""
	if len(cfg.AWS.Regions) > 0 && cfg.AWS.Regions[0] != "all" {
		region = cfg.AWS.Regions[0]
	}
	return clouds.AWSCaller(req, cfg).Sign(ctx, cmp.Or(profile, cfg.AWS.Profile), region, binding)
}

// verifyCaller returns the signer for a binding, as identified by STS and by the names of the
// configuration.
func verifyCaller(ctx context.Context, req *runtime.Request, cfg config.Config, signed, binding string) (
	approval.Person, error) {
	id, err := clouds.AWSCaller(req, cfg).Verify(ctx, signed, binding)
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
	return approval.Person{
		Name: name, Roles: approval.Roles(cfg.Holders(), name),
		Proof: approval.Proof{Kind: approval.AWSCaller, Subject: arn, Detail: detail, Mapped: known, Signed: signed},
	}
}

// approvalBinding returns the text that an approver signs: one decision about one request for one
// plan until its expiry, so that no one who can write to the state can extend the approval.
func approvalBinding(r approval.Request) string {
	return strings.Join([]string{
		"curfew.approval/v2", r.ID, r.PlanHash, r.Amount.String(),
		r.ExpiresAt.UTC().Format(time.RFC3339Nano), "approve",
	}, "\n")
}

// CheckProof returns the check of proofs at the time of their use. Self-declared names only count
// if declared is true. actor carries out the request; nil is the requester.
func CheckProof(req *runtime.Request, cfg config.Config, declared bool, actor *approval.Person) func(context.Context,
	approval.Request) error {
	return func(ctx context.Context, r approval.Request) error {
		refuse := func(format string, args ...any) error {
			return &approval.Refusal{
				Rule: approval.RuleProof,
				Why: fmt.Sprintf("the approval %s by %s does not count: ", r.ID, r.DecidedBy) +
					fmt.Sprintf(format, args...),
			}
		}
		var by approval.Person
		switch {
		case r.Proof.Kind == approval.AWSCaller:
			var err error
			if by, err = verifySigner(ctx, req, cfg, r); err != nil {
				return refuse("%v; approve it again, and run this within %s of that", err, approval.ProofAge)
			}
		case r.Proof.Kind == approval.Token || r.Proof.Kind == approval.OIDC:
			var err error
			if by, err = verifyVoucher(req, cfg, r); err != nil {
				return refuse("%v", err)
			}
		case r.Proof.Kind == approval.GitHubReview && req.Reviewed(r.ID):
			return nil
		case r.Proof.Kind == approval.GitHubReview && !declared:
			return refuse(
				"this run did not find its review; run it with --github in a workflow of the pull request, or " +
					"approve with AWS credentials")
		case !declared:
			return refuse("its identity is %s; approve with AWS credentials, or set approvals.accept: [self-declared]",
				r.Proof)
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

// verifySigner returns the signer of an approval, by STS now or by the receipt of an earlier run of
// this user: a proof is fresh for 15 minutes, but a grace period may be longer.
func verifySigner(ctx context.Context, req *runtime.Request, cfg config.Config, r approval.Request) (approval.Person,
	error) {
	sum := sha256.Sum256([]byte(approvalBinding(r) + "\n" + r.Proof.Signed))
	receipt := filepath.Join(cfg.DataDir, "proofs", hex.EncodeToString(sum[:]))
	if cfg.DataDir != "" && r.Proof.Signed != "" {
		if arn, err := os.ReadFile(receipt); err == nil && strings.HasPrefix(string(arn), "arn:") {
			return awsPerson(cfg, string(arn), "STS before", r.Proof.Signed), nil
		}
	}
	by, err := verifyCaller(ctx, req, cfg, r.Proof.Signed, approvalBinding(r))
	if err != nil || cfg.DataDir == "" {
		return by, err
	}
	if err = os.MkdirAll(filepath.Dir(receipt), 0o700); err == nil {
		// the ARN must not be truncated to another identity
		err = durable.ReplaceBytes(receipt, 0o600, []byte(by.Proof.Subject))
	}
	if err != nil {
		return by, fmt.Errorf("keep the receipt of a proof: %w", runtime.Cause(err))
	}
	return by, nil
}

// FixKind is the Kind of fix requests.
const FixKind = "fix"

// Approver returns the person who decides a request, with the proof that its kind requires.
func Approver(ctx context.Context, req *runtime.Request, cfg config.Config, r approval.Request, proof string,
	allow bool) (approval.Person, error) {
	needs := r.Kind == FixKind && !cfg.Approvals.Accepts(approval.SelfDeclared)
	if who, served := req.Caller.Served(); served {
		return decider(req, cfg, who, r, allow && needs)
	}
	if proof == "aws" || proof == "auto" && allow && needs {
		who, err := SignedIn(ctx, req, cfg, approvalBinding(r))
		switch {
		case err == nil:
			return who, nil
		case errors.Is(err, clouds.ErrNoCredentials):
			return who, &runtime.Error{
				Class: runtime.Denied, Code: "not_approved",
				Err: fmt.Errorf("request %s needs a verified identity: %w", r.ID,
					err),
				Hint: "sign in to AWS as yourself, or set approvals.accept: [self-declared]; `curfew whoami` shows " +
					"who you are"}
		}
		return who, &runtime.Error{
			Class: runtime.Denied, Code: "not_approved",
			Err:  fmt.Errorf("request %s needs a verified identity: %w", r.ID, err),
			Hint: "`curfew whoami` shows who you are",
		}
	}
	if allow && needs {
		return approval.Person{}, &runtime.Error{
			Class: runtime.Denied, Code: "not_approved",
			Err:  fmt.Errorf("request %s needs a verified identity, and a name is self-declared", r.ID),
			Hint: "approve with AWS credentials, or set approvals.accept: [self-declared]"}
	}
	return req.Declared(cfg)
}
