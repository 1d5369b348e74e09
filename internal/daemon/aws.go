package daemon

import (
	"cmp"
	"context"
	"errors"
	"regexp"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/view"
)

// AWS is an account of AWS that is read and can be acted on.
type AWS = aws.Cloud

type awsActions = *aws.Actions

var (
	errNoCredentials = aws.ErrNoCredentials
	signer           = aws.Signer
	// keepByHand is the provider's command that keeps a resource until a time.
	keepByHand = aws.KeepByHand
)

// The IAM policies that curfew needs, as JSON documents.
var (
	ReadPolicy   = aws.PolicyJSON
	ActionPolicy = aws.ActionPolicyJSON
)

// What passes ask of AWS, and what it charges for that.
var (
	WatchingPass    = aws.Watching
	ExplorerRequest = aws.ExplorerRequest
)

// onMachine is what an agent asks of AWS as its machine.
func onMachine(ctx context.Context) (*aws.OnMachine, error) { return aws.NewOnMachine(ctx) }

// SpotPrice is the price of a machine type on the spot market.
type SpotPrice = aws.SpotPrice

// OpenAWS opens the account of a profile for what is neither an audit nor an action:
// objects in buckets and price lists. No regions are those of the configuration.
func OpenAWS(ctx context.Context, cfg config.Config, profile string, regions []string) (*AWS, error) {
	if len(regions) == 0 {
		regions = cfg.AWS.Regions
	}
	return aws.New(ctx, aws.Options{Regions: regions, Profile: cmp.Or(profile, cfg.AWS.Profile), RequestsPerSecond: cfg.AWS.RequestsPerSecond})
}

// roleARN is the form of an IAM role's ARN.
var roleARN = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$`)

func (rt *Runtime) aws(ctx context.Context, f Source, cfg config.Config, book *price.Book) (*AWS, error) {
	o := aws.Options{
		Regions: cfg.AWS.Regions, AssumeRoles: cfg.AWS.AssumeRoles, ExternalID: cfg.AWS.ExternalID, Profile: cfg.AWS.Profile,
		RequestsPerSecond: cfg.AWS.RequestsPerSecond, ListPages: cfg.AWS.ListPages, Tags: cfg.Tags,
		Size: book.Size,
	}
	if cfg.DataDir != "" {
		o.Bills = keptBills{cfg.DataDir, f.Transient}
	}
	if len(f.Regions) > 0 {
		o.Regions = f.Regions
	}
	if len(f.AssumeRoles) > 0 || f.Alone {
		o.AssumeRoles, o.RolesOnly = f.AssumeRoles, f.Alone && len(f.AssumeRoles) > 0
	}
	if f.Profile != "" {
		o.Profile = f.Profile
	}
	for _, role := range o.AssumeRoles {
		if !roleARN.MatchString(role) {
			return nil, invalid("--assume-role %q: it is the ARN of a role such as arn:aws:iam::123456789012:role/audit", role)
		}
	}
	cloud, err := aws.New(ctx, o)
	if err == nil {
		return cloud, nil
	}
	err = CloudError(err)
	for _, region := range o.Regions {
		if f := (*Error)(nil); region != "all" && errors.As(err, &f) {
			f.Hint += document.DidYouMean(region, book.Regions())
		}
	}
	return nil, err
}

func unknownRegion(err error) bool {
	var region *aws.RegionError
	return errors.As(err, &region)
}

// caller proves who has AWS credentials.
func (rt *Runtime) caller(cfg config.Config) aws.Caller {
	return aws.Caller{Endpoint: cfg.Approvals.STSEndpoint, Now: rt.Now}
}

// Know says how far an action on AWS can be undone and what to know before.
func Know(r *inventory.Resource, do policy.Do) (undo, know string) { return aws.Know(r, do.Verb) }

// ByHand returns the provider's commands that carry out the fix of a finding; none where a
// person has to decide more than a command can say.
func ByHand(f view.Finding) []string {
	return aws.ByHand(aws.Subject{Kind: inventory.Kind(f.Resource.Kind), ID: f.Resource.ID, Type: f.Resource.Type, Account: f.Resource.Account,
		Region: f.Resource.Region}, f.Fix.Change)
}
