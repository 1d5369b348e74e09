package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"golang.org/x/sync/errgroup"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// account is one account with the credentials to read it.
type account struct {
	id  string
	cfg awssdk.Config
	// role is the ARN of the assumed role; empty for the configured credentials.
	role string
	// via is the region that accepted the credentials.
	via string
}

// sessionName is the role session name, which appears in the audited accounts' logs.
const sessionName = "curfew-scan"

// identityBackoff bounds the wait between attempts to identify the credentials, because a person is
// waiting.
const identityBackoff = time.Second

// accounts identifies the account of the configured credentials and of every role concurrently. An
// account reachable by two of them is read once, through the role. A role that cannot be assumed is
// a blind spot as long as another account can be read.
func (s *scan) accounts(ctx context.Context) ([]*account, error) {
	c := s.cloud
	base := &account{cfg: c.config}
	if err := s.identify(ctx, base); err != nil {
		return nil, err
	}
	roles := distinct(c.options.AssumeRoles)
	found := make([]*account, len(roles))
	failed := make([]error, len(roles))
	var g errgroup.Group
	g.SetLimit(maxParts)
	for i, arn := range roles {
		g.Go(func() error {
			a := &account{role: arn, cfg: c.config.Copy()}
			assume := sts.NewFromConfig(c.config, s.stsOptions("role", base.via))
			a.cfg.Credentials = awssdk.NewCredentialsCache(stscreds.NewAssumeRoleProvider(assume, arn,
				func(o *stscreds.AssumeRoleOptions) {
					o.RoleSessionName = sessionName
					if id := c.options.ExternalID; id != "" {
						o.ExternalID = &id
					}
				}))
			if failed[i] = s.identify(ctx, a); failed[i] == nil {
				found[i] = a
			}
			return nil
		})
	}
	_ = g.Wait() // the goroutines return no error
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	all := []*account{base}
	if c.options.RolesOnly {
		all = nil
		if len(roles) == 1 && failed[0] != nil {
			return nil, fmt.Errorf("assume %s: %w", roles[0], failed[0])
		}
	}
	for i, a := range found {
		if a == nil {
			code, detail := reason(failed[i])
			s.blind(inventory.BlindSpot{
				What: "account of " + roles[i], Why: joined(code, detail), Effect: "nothing of that account was read",
			})
			continue
		}
		twice := false
		for j, other := range all {
			if other.id == a.id {
				twice = true
				if other.role == "" {
					all[j] = a
				}
			}
		}
		if !twice {
			all = append(all, a)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached = all
	return all, nil
}

// reached returns the accounts found last, or finds them.
func (s *scan) reached(ctx context.Context) ([]*account, error) {
	s.cloud.mu.Lock()
	all := s.cloud.reached
	s.cloud.mu.Unlock()
	if all != nil {
		return all, nil
	}
	return s.accounts(ctx)
}

// stsOptions configures a client that identifies the credentials.
func (s *scan) stsOptions(key, region string) func(*sts.Options) {
	return func(o *sts.Options) {
		o.Region = region
		o.APIOptions = append(o.APIOptions, guard("sts", s.tally, s.limits.of(key, region, "sts")))
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts = 3
			r.MaxBackoff = identityBackoff
		})
	}
}

// identify returns the account ID. It asks the scanned region first, which may be the only
// reachable one, and then the partition's home region, because the first may not exist or not be
// enabled and then rejects the credentials.
func (s *scan) identify(ctx context.Context, a *account) error {
	if a.cfg.Credentials == nil {
		return fmt.Errorf("sign in to AWS: %w", inventory.ErrUnauthenticated)
	}
	if _, err := a.cfg.Credentials.Retrieve(ctx); err != nil {
		return credentialError(ctx, a, err)
	}
	var answer error // prefer the error that is not about missing credentials
	for _, region := range distinct([]string{s.cloud.first(), s.cloud.home()}) {
		client := sts.NewFromConfig(a.cfg, s.stsOptions(a.role, region))
		out, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
		if err == nil {
			a.id, a.via = awssdk.ToString(out.Account), region
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		kind := kindOf(err)
		if answer == nil || !errors.Is(kind, inventory.ErrUnavailable) {
			answer = err
		}
		if !errors.Is(kind, inventory.ErrUnavailable) && !errors.Is(kind, inventory.ErrUnauthenticated) {
			break
		}
	}
	return wrapped("ask AWS whose credentials these are", answer)
}

// credentialError explains missing credentials. The SDK's error lists every source it tried; the
// last one is the relevant one.
func credentialError(ctx context.Context, a *account, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if a.role != "" {
		code, detail := reason(err)
		return fmt.Errorf("assume role %s: %w (%s)", a.role, inventory.ErrUnauthenticated, joined(code, detail))
	}
	if c := code(err); c != "" {
		// A refusal of a sign-in service, as opposed to an outage, means that the sign-in has
		// expired.
		if errors.Is(kindOf(err), inventory.ErrUnavailable) && statusOf(err) < http.StatusInternalServerError {
			code, detail := reason(err)
			return fmt.Errorf("sign in to AWS: %w (%s)", inventory.ErrUnauthenticated, joined(code, detail))
		}
		return wrapped("sign in to AWS", err)
	}
	words := err.Error()
	if strings.Contains(words, "no EC2 IMDS role found") {
		words = "none in the environment, in the shared files, or from this machine's role"
	}
	return fmt.Errorf("sign in to AWS: %w (%s)", inventory.ErrUnauthenticated, oneLine(words))
}

// joined returns "code: detail", or the non-empty one.
func joined(code, detail string) string {
	if detail == "" {
		return code
	}
	return code + ": " + detail
}
