// Package aws reads AWS accounts: what they hold, what was measured of it, and what
// things cost. To read, it only ever makes the calls in [Operations], none of which
// changes anything; a call that is not among them is refused before it is sent.
//
// What cannot be read becomes a blind spot with its effect on the answer, and the
// rest goes on.
//
// [Actions] acts on the accounts, by clients of its own that make the calls in
// mutations and no others. There it is the other way round: what cannot be read
// refuses.
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

// Options select the accounts and regions to read, and how. The zero Options read the configured
// region of the account that the configured credentials belong to.
type Options struct {
	// Regions to read; empty: the configured region. The one name "all" stands for
	// every region that each account has enabled.
	Regions []string
	// AssumeRoles are the ARNs of roles in further accounts, read in addition to the
	// account of the credentials.
	AssumeRoles []string
	// ExternalID is the sts:ExternalId that the roles' trust policies require; empty sends none.
	ExternalID string
	// RolesOnly leaves the account of the credentials out: only those of AssumeRoles are
	// read.
	RolesOnly bool
	// Profile of the shared configuration files; empty: the configured one.
	Profile string
	// RequestsPerSecond bounds the calls to one service in one region of one
	// account; 0 means DefaultRequestsPerSecond. S3, whose own limits are thousands
	// a second, gets ten times as many.
	RequestsPerSecond float64
	// AttemptTimeout bounds one try of a call, its answer read to the end; 0 means 20 seconds.
	AttemptTimeout time.Duration
	// ListPages bounds the listing of one bucket's objects, and apart from it of its
	// versions and its uploads, in pages of 1,000; 0 means DefaultListPages.
	ListPages int
	// Tags maps tags to owners; the zero mapping means the default one.
	Tags inventory.TagMapping
	// Size returns the size of a machine type, such as price.Book.Size, for types that EC2 does not
	// describe: those of managed services, and all if EC2 may not be asked. Nil knows none.
	Size func(machineType string) inventory.Size
	// Bills keeps Cost Explorer's answers, so that it is asked once a day; nil asks in each scan.
	Bills BillKeeper
	// HTTP is the client that carries the calls; nil means the SDK's.
	HTTP awssdk.HTTPClient
}

// Defaults of Options.
const (
	DefaultRequestsPerSecond = 10
	DefaultListPages         = 5
)

// s3Factor is how much faster S3 is called than other services.
const s3Factor = 10

// Retries: the SDK's own default is 3 attempts; throttling of large accounts takes
// more.
const (
	maxAttempts = 5
	maxBackoff  = 10 * time.Second
)

// Cloud reads accounts. It is safe for concurrent use. Between readings it remembers
// nothing but whose the credentials were.
type Cloud struct {
	options Options
	config  awssdk.Config
	regions []string // as asked for; nil when all
	all     bool

	mu sync.Mutex
	// reached are the accounts that were found last.
	reached []*account
}

// New returns a Cloud for the configured credentials. It makes no call. Errors: a
// [RegionError] for a name that cannot be a region's or when there is no region at
// all, and inventory.ErrUnauthenticated for a profile that does not exist or cannot
// be used.
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

// retryer is the SDK's, less patient with a bare HTTP 500 in a form that the service does
// not speak: mostly something in between does not know the call, and never will.
type retryer struct{ awssdk.RetryerV2 }

const (
	foreignAttempts = 3
	foreignDelay    = 50 * time.Millisecond
	// slowAttempts is how often a call is tried that is not answered at all.
	slowAttempts = 2
)

// RetryDelay returns how long to wait after an attempt, or the attempt's error when
// there is to be none after it.
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

// once retries only what the service says it has not done, for calls that have no token by
// which it knows them again: after a lost answer a second one would be carried out too. What
// came of it is looked up in the next round.
type once struct{ awssdk.Retryer }

// IsErrorRetryable reports whether the service was too busy for the call.
func (o once) IsErrorRetryable(err error) bool {
	return retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) == awssdk.TrueTernary &&
		o.Retryer.IsErrorRetryable(err)
}

// distinct returns names without repetitions, in their order.
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
