// Package aws reads AWS accounts: their resources, usage and costs. Reading makes only the calls in
// [Operations], none of which changes anything; other calls are refused before they are sent.
//
// Anything unreadable becomes a blind spot with its effect, and reading continues.
//
// [Actions] acts on the accounts, with separate clients that make only the calls in mutations.
// There anything unreadable leads to a refusal.
package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// cloudName is the name of this cloud in identities.
const cloudName = "aws"

// Options select the accounts and regions to read. The zero Options read the configured region of
// the configured credentials' account.
type Options struct {
	// Regions to read; empty for the configured region. "all" stands for every region enabled in
	// each account.
	Regions []string
	// AssumeRoles are the ARNs of roles in further accounts, read in addition to the
	// account of the credentials.
	AssumeRoles []string
	// ExternalID is the sts:ExternalId that the roles' trust policies require; empty sends none.
	ExternalID string
	// RolesOnly skips the account of the credentials and reads only those of AssumeRoles.
	RolesOnly bool
	// Profile of the shared configuration files; empty: the configured one.
	Profile string
	// RequestsPerSecond limits the calls to one service in one region of one account; 0 means
	// DefaultRequestsPerSecond. S3, whose own limits are thousands a second, gets ten times as
	// many.
	RequestsPerSecond float64
	// AttemptTimeout bounds one attempt of a call including its response; 0 means 20 seconds.
	AttemptTimeout time.Duration
	// ListPages bounds the listing of one bucket's objects, and separately its versions and
	// uploads, in pages of 1,000; 0 means DefaultListPages.
	ListPages int
	// Tags maps tags to owners; the zero mapping means the default one.
	Tags inventory.TagMapping
	// Size returns the size of a machine type, such as price.Book.Size, for types that EC2 does not
	// describe: those of managed services, and all types without access to EC2. Nil knows none.
	Size func(machineType string) inventory.Size
	// Bills caches Cost Explorer responses, so that it is queried once a day; nil queries it in
	// each scan.
	Bills BillKeeper
	// HTTP is the client that carries the calls; nil means the SDK's.
	HTTP awssdk.HTTPClient
}

// Defaults of Options.
const (
	DefaultRequestsPerSecond = 10
	DefaultListPages         = 5
)

// s3Factor is the ratio of S3's rate limit to that of other services.
const s3Factor = 10

// Retries: the SDK's default of 3 attempts is too low for throttling in large accounts.
const (
	maxAttempts = 5
	maxBackoff  = 10 * time.Second
)

// Cloud reads accounts. It is safe for concurrent use. It remembers only the identity of the
// credentials.
type Cloud struct {
	options Options
	config  awssdk.Config
	regions []string // nil for all
	all     bool

	mu sync.Mutex
	// reached holds the accounts found last.
	reached []*account
}

// New returns a Cloud for the configured credentials. It makes no call. Errors are a [RegionError]
// for an invalid or missing region, and inventory.ErrUnauthenticated for a missing or unusable
// profile.
func New(ctx context.Context, o Options) (*Cloud, error) {
	if o.RequestsPerSecond <= 0 {
		o.RequestsPerSecond = DefaultRequestsPerSecond
	}
	if o.ListPages <= 0 {
		o.ListPages = DefaultListPages
	}
	if len(o.Tags.Team)+len(o.Tags.Project)+len(o.Tags.User)+len(o.Tags.Environment)+len(o.Tags.CostCenter)+
		len(o.Tags.Purpose)+len(o.Tags.Lifetime) == 0 {
		o.Tags = inventory.DefaultTagMapping()
	}
	c := &Cloud{options: o}
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithSharedConfigProfile(o.Profile),
		config.WithRetryer(newRetryer),
		config.WithAppID("curfew"),
		config.WithLogger(logging.Nop{}), // errors are returned
		func(l *config.LoadOptions) error {
			if o.HTTP != nil {
				l.HTTPClient = o.HTTP
			}
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("read the AWS configuration: %w: %s", inventory.ErrUnauthenticated,
			oneLine(innermost(err).Error()))
	}
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = awshttp.NewBuildableClient()
	}
	cfg.HTTPClient = plainBody{cfg.HTTPClient}
	c.config = cfg
	switch {
	case len(o.Regions) == 1 && o.Regions[0] == "all":
		c.all = true
	case len(o.Regions) > 0:
		c.regions = distinct(o.Regions)
	case cfg.Region != "":
		c.regions = []string{cfg.Region}
	default:
		return nil, &RegionError{Reason: "no region is given and none is configured"}
	}
	for _, r := range c.regions {
		if err := checkName(r); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// newRetryer returns the SDK's retryer with the module's settings.
func newRetryer() awssdk.Retryer {
	return retryer{retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = maxAttempts
		o.MaxBackoff = maxBackoff
	})}
}

// retryer is the SDK's retryer with fewer attempts for a bare HTTP 500 in a foreign format: mostly
// from a proxy that does not know the call.
type retryer struct{ awssdk.RetryerV2 }

const (
	foreignAttempts = 3
	foreignDelay    = 50 * time.Millisecond
	// slowAttempts is the number of attempts for a call without any response.
	slowAttempts = 2
)

// RetryDelay returns the wait after an attempt, or the attempt's error if there is to be no other.
func (r retryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	if errors.As(err, new(*slowError)) && attempt >= slowAttempts {
		return 0, err
	}
	if statusOf(err) != http.StatusInternalServerError || !notTheService(err) {
		return r.RetryerV2.RetryDelay(attempt, err)
	}
	if attempt >= foreignAttempts {
		return 0, err
	}
	return time.Duration(attempt) * foreignDelay, nil
}

// once retries only if the service confirms that it did nothing, for calls without an idempotency
// token: repeating one after a lost response could execute it twice. The next round looks up the
// result.
type once struct{ awssdk.Retryer }

// IsErrorRetryable reports whether the service was too busy for the call.
func (o once) IsErrorRetryable(err error) bool {
	return retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) == awssdk.TrueTernary &&
		o.Retryer.IsErrorRetryable(err)
}

// distinct returns the distinct names in order.
func distinct(names []string) []string {
	seen := make(map[string]bool, len(names))
	out := make([]string, 0, len(names))
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}
