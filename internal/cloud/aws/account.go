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

// account is one account with the credentials that read it.
type account struct {
	id  string
	cfg awssdk.Config
	// role is the ARN that was assumed; empty for the configured credentials.
	role string
	// via is the region that knew the credentials.
	via string
}

// sessionName names the sessions of assumed roles in the audited accounts' logs.
const sessionName = "curfew-scan"

// identityBackoff bounds the wait between attempts to learn whose credentials these
// are: nothing else has begun, and a person waits.
const identityBackoff = time.Second

// accounts identifies the account of the configured credentials and of every role, side
// by side. An account that two of them reach is read once, through the role. A role that
// cannot be assumed is a blind spot as long as another account can be read.
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

// reached returns the accounts that were found last, or finds them.
func (s *scan) reached(ctx context.Context) ([]*account, error) {
	s.cloud.mu.Lock()
	all := s.cloud.reached
	s.cloud.mu.Unlock()
	if all != nil {
		return all, nil
	}
	return s.accounts(ctx)
}

// stsOptions sets up a client that learns who the credentials are.
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

// identify learns the account's id. It asks the region that is read, which may be the
// only one within reach, and then the partition's home region, because the first may not
// exist, or may not be enabled: then it knows no credentials of the account.
func (s *scan) identify(ctx context.Context, a *account) error {
	if a.cfg.Credentials == nil {
		return fmt.Errorf("sign in to AWS: %w", inventory.ErrUnauthenticated)
	}
	if _, err := a.cfg.Credentials.Retrieve(ctx); err != nil {
		return credentialError(ctx, a, err)
	}
	var answer error // the one that says more, which is not that there was none
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

// credentialError explains why there are no credentials. The SDK's own words list every place it
// looked in; the last of them is where it gave up.
func credentialError(ctx context.Context, a *account, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if a.role != "" {
		code, detail := reason(err)
		return fmt.Errorf("assume role %s: %w (%s)", a.role, inventory.ErrUnauthenticated, joined(code, detail))
	}
	if c := code(err); c != "" {
		// What a service of sign-ins refuses in a word of its own, and not because it is down,
		// is a sign-in that is over.
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

// joined returns "code: detail", or the one that is there.
func joined(code, detail string) string {
	if detail == "" {
		return code
	}
	return code + ": " + detail
}
