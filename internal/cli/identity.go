package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/store"
)

// declared is who gives the command by a name that nobody proves.
func (a *app) declared(cfg config.Config) (approval.Person, error) {
	name, err := a.person(cfg)
	if err != nil {
		return approval.Person{}, err
	}
	_, known := cfg.People[name]
	for _, of := range cfg.GitHub.Identities {
		known = known || of == name
	}
	return approval.Person{Name: name, Roles: rolesOf(cfg.Approvers, name), Proof: approval.Proof{Kind: approval.SelfDeclared, Subject: name, Mapped: known}}, nil
}

// caller proves who has AWS credentials.
func (a *app) caller(cfg config.Config) aws.Caller {
	return aws.Caller{Endpoint: cfg.Approvals.STSEndpoint, Now: a.Now}
}

// signedIn is who gives the command by the AWS credentials of the profile, proven for a
// binding.
func (a *app) signedIn(ctx context.Context, cfg config.Config, binding string) (approval.Person, error) {
	c, region := a.caller(cfg), ""
	if len(cfg.AWS.Regions) > 0 && cfg.AWS.Regions[0] != "all" {
		region = cfg.AWS.Regions[0]
	}
	signed, err := c.Sign(ctx, cfg.AWS.Profile, region, binding)
	if err != nil {
		return approval.Person{}, err
	}
	return a.callerOf(ctx, cfg, signed, binding)
}

// callerOf is who signed for a binding, by the word of STS and the names of the
// configuration.
func (a *app) callerOf(ctx context.Context, cfg config.Config, signed, binding string) (approval.Person, error) {
	id, err := a.caller(cfg).Verify(ctx, signed, binding)
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
	name = first(name, arn)
	return approval.Person{Name: name, Roles: rolesOf(cfg.Approvers, name), Proof: approval.Proof{Kind: approval.AWSCaller, Subject: arn, Detail: detail, Mapped: known, Signed: signed}}
}

// binding is what an approver signs: one decision about one request for one plan.
func binding(r approval.Request) string {
	return strings.Join([]string{"curfew.approval/v1", r.ID, r.PlanHash, r.Amount.String(), "approve"}, "\n")
}

// checked is the check of proofs at the time of their use. Names that nobody proves count
// only where declared says so. actor is who carries it out; nil: whoever asked.
func (a *app) checked(cfg config.Config, declared bool, actor *approval.Person) func(context.Context, approval.Request) error {
	return func(ctx context.Context, r approval.Request) error {
		refuse := func(format string, args ...any) error {
			return &approval.Refusal{Rule: "proof", Why: fmt.Sprintf("the approval %s by %s does not count: ", r.ID, r.DecidedBy) + fmt.Sprintf(format, args...)}
		}
		var by approval.Person
		switch {
		case r.Proof.Kind == approval.AWSCaller:
			var err error
			if by, err = a.signer(ctx, cfg, r); err != nil {
				return refuse("%v; approve it again, and run this within %s of that", err, approval.ProofAge)
			}
		case r.Proof.Kind == approval.GitHubReview && a.reviewed[r.ID]:
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
			if why := approval.One(by, other); why != "" {
				return refuse("%s", why)
			}
		}
		if !slices.ContainsFunc(by.Roles, func(role string) bool { return slices.Contains(r.Roles, role) }) {
			return refuse("%s has none of the roles %s here", by.Name, strings.Join(r.Roles, ", "))
		}
		return nil
	}
}

// signer is who signed an approval, by the word of STS now, or at an earlier run of this
// user of which a receipt is kept: a proof is fresh for 15 minutes, a grace may be longer.
func (a *app) signer(ctx context.Context, cfg config.Config, r approval.Request) (approval.Person, error) {
	sum := sha256.Sum256([]byte(binding(r) + "\n" + r.Proof.Signed))
	receipt := filepath.Join(cfg.DataDir, "proofs", hex.EncodeToString(sum[:]))
	if cfg.DataDir != "" && r.Proof.Signed != "" {
		if arn, err := os.ReadFile(receipt); err == nil && strings.HasPrefix(string(arn), "arn:") {
			return awsPerson(cfg, string(arn), "STS before", r.Proof.Signed), nil
		}
	}
	by, err := a.callerOf(ctx, cfg, r.Proof.Signed, binding(r))
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

// fixKind is the Kind of the requests of fixes.
const fixKind = "fix"

func (a *app) newWhoami() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "whoami",
		Short: "Show your identity, how it is proven, and what you may approve",
		Long: `Shows the name under which you give commands and how it is proven. AWS credentials
prove an identity by GetCallerIdentity, asked of STS itself; a name in curfew.yaml or
CURFEW_IDENTITY is self-declared and opens no fix unless approvals.accept says so.`,
		Example: "  curfew whoami\n  curfew whoami -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "table", "json"); err != nil {
				return err
			}
			return a.whoami(c.Context(), output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

// peopleHere is the configuration with the roles and identities that count; a state that is
// a file is not made for it.
func (a *app) peopleHere(ctx context.Context, cfg config.Config) (config.Config, decider, error) {
	if _, err := os.Stat(filepath.Join(cfg.DataDir, store.FileName)); cfg.DatabaseURL == "" && (cfg.DataDir == "" || err != nil) {
		return cfg, decider{Source: "local", Hash: cfg.SharedHash(), Advisory: true}, nil
	}
	s, err := a.open(ctx, cfg)
	if err != nil {
		return cfg, decider{}, err
	}
	defer s.Close()
	return a.people(ctx, cfg, s)
}

func (a *app) whoami(ctx context.Context, output string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	cfg, by, err := a.peopleHere(ctx, cfg)
	if err != nil {
		return err
	}
	declared, err := a.declared(cfg)
	if err != nil {
		return err
	}
	who, failed := a.signedIn(ctx, cfg, "curfew whoami")
	if failed != nil {
		who = declared
	}
	opens := cfg.Approvals.Accepts(who.Proof.Kind)
	if output == "json" {
		doc := map[string]any{"schema": "curfew.whoami/v1", "name": who.Name, "declared": declared.Name, "proof": string(who.Proof.Kind), "verified": who.Proof.Verified(),
			"subject": who.Proof.Subject, "verified_by": who.Proof.Detail, "in_people": who.Proof.Mapped, "roles": append([]string{}, who.Roles...), "opens_fixes": opens, "unverified_because": nil, "settings": by}
		if failed != nil {
			doc["unverified_because"] = failed.Error()
		}
		return a.printJSON(doc)
	}
	row := func(label, text string) { plain.Fprintf(a.Stdout, "%-10s %s\n", label, text) }
	row("name", who.Name)
	row("proof", who.Proof.String())
	if failed != nil {
		row("", "AWS: "+failed.Error())
	} else if declared.Name != who.Name {
		row("declared", declared.Name+" (self-declared, not verified)")
	}
	roles := strings.Join(who.Roles, ", ")
	where := "curfew.yaml"
	if !by.Advisory {
		where = fmt.Sprintf("the shared settings (version %d)", by.Version)
	}
	row("roles", first(roles, "none: the approvers section of "+where+" does not name you"))
	if roles != "" && !by.Advisory {
		row("", "by "+where)
	}
	switch {
	case opens && roles != "":
		row("approves", "gate requests and fixes that others asked for")
	case roles != "":
		row("approves", "gate requests that others asked for; fixes need AWS credentials")
	}
	return nil
}

// approver is who decides a request, with the proof that its kind needs.
func (a *app) approver(ctx context.Context, cfg config.Config, r approval.Request, proof string, allow bool) (approval.Person, error) {
	needs := r.Kind == fixKind && !cfg.Approvals.Accepts(approval.SelfDeclared)
	if proof == "aws" || proof == "auto" && allow && needs {
		who, err := a.signedIn(ctx, cfg, binding(r))
		switch {
		case err == nil:
			return who, nil
		case errors.Is(err, aws.ErrNoCredentials):
			return who, &failure{exit: ExitDenied, code: "not_approved", err: fmt.Errorf("request %s needs a verified identity: %w", r.ID, err),
				hint: "sign in to AWS as yourself, or set approvals.accept: [self-declared]; `curfew whoami` shows who you are"}
		}
		return who, &failure{exit: ExitDenied, code: "not_approved", err: fmt.Errorf("request %s needs a verified identity: %w", r.ID, err), hint: "`curfew whoami` shows who you are"}
	}
	if allow && needs {
		return approval.Person{}, &failure{exit: ExitDenied, code: "not_approved", err: fmt.Errorf("request %s needs a verified identity, and a name is self-declared", r.ID),
			hint: "approve with AWS credentials, or set approvals.accept: [self-declared]"}
	}
	return a.declared(cfg)
}
