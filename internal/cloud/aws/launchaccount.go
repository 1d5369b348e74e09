package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/spec"
)

// identity is the owner of a launcher's credentials.
type identity struct {
	// key identifies the credentials.
	key             string
	account, userID string
}

// Account returns the account of the credentials and their owner's ID in it, as compared by IAM
// (aws:userid). It is queried again when the credentials change.
func (l *Launcher) Account(ctx context.Context) (account, userID string, err error) {
	cfg := l.config(l.cloud.first(), "sts")
	if cfg.Credentials == nil {
		return "", "", fmt.Errorf("sign in to AWS: %w", inventory.ErrUnauthenticated)
	}
	creds, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return "", "", credentialError(ctx, &accountOf, err)
	}
	key := creds.AccessKeyID + " " + creds.SessionToken
	l.mu.Lock()
	known := l.identity
	l.mu.Unlock()
	if known.key == key {
		return known.account, known.userID, nil
	}
	out, err := stsClient(l.at(l.cloud.first())).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", "", wrapped("ask AWS whose credentials these are", err)
	}
	known = identity{key, awssdk.ToString(out.Account), awssdk.ToString(out.UserId)}
	if known.account == "" {
		return "", "", unclear("ask AWS whose credentials these are")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.identity = known
	return known.account, known.userID, nil
}

// accountOf stands for the account of the configured credentials in messages.
var accountOf account

// known returns the last known account; empty before the first query.
func (l *Launcher) known() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.identity.account
}

// regions returns the regions for machines, the preferred first.
func (l *Launcher) regions() ([]string, error) {
	switch {
	case len(l.options.Regions) > 0:
		return l.options.Regions, nil
	case len(l.cloud.regions) > 0:
		return l.cloud.regions, nil
	}
	return nil, errors.New("sessions need regions by name: set sessions.regions in curfew.yaml")
}

// Regions returns the regions with a backbone in which a specification may run, the preferred
// first. Without one, the error suggests a remedy.
func (l *Launcher) Regions(ctx context.Context, s *spec.Spec) ([]string, error) {
	all, err := l.regions()
	if err != nil {
		return nil, err
	}
	if len(s.Regions) > 0 { // in the specification's order
		all = slices.DeleteFunc(slices.Clone(s.Regions), func(r string) bool { return !slices.Contains(all, r) })
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s may run in none of the regions of sessions.regions or aws.regions: %w", s.Name,
			errNowhere)
	}
	var out []string
	var none error
	for _, r := range all {
		switch _, err := l.Backbone(ctx, r); {
		case err == nil:
			out = append(out, r)
		case errors.Is(err, errNoBackbone):
			none = errors.Join(none, err)
		default:
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, none
	}
	return out, nil
}

// watched returns all regions that may have machines of sessions.
func (l *Launcher) watched(ctx context.Context) ([]string, error) {
	all, err := l.regions()
	if l.options.Watched == nil {
		return all, err
	}
	more, failed := l.options.Watched(ctx)
	if failed != nil {
		return nil, failed
	}
	if all = distinct(append(slices.Clone(all), more...)); len(all) == 0 {
		return nil, err
	}
	return all, nil
}
