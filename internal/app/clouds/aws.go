package clouds

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/internal/view"
)

// AWS is an AWS account that can be read and acted on.
type AWS = aws.Cloud

// AWSMember is a member account of an organization.
type AWSMember = aws.Member

// AWSActions makes the calls that change an account.
type AWSActions = *aws.Actions

// AWSMachines starts and ends the machines of sessions on AWS.
type AWSMachines = aws.Launcher

// AWSBackbone is the infrastructure for sessions in a region of an account.
type AWSBackbone = aws.Backbone

// The types of connections of people to these machines.
type (
	// AWSConnector opens and ends connections.
	AWSConnector = aws.Connector
	// AWSPlugin is the Session Manager plugin.
	AWSPlugin = aws.Plugin
	// AWSWay is how a connection reaches a machine.
	AWSWay = aws.Way
	// AWSOpened is an open connection.
	AWSOpened = aws.Opened
	// AWSAttachment is a connection with the plugin's streams.
	AWSAttachment = aws.Attachment
)

// TagPerson names who may connect to a machine.
const TagPerson = aws.TagPerson

// The Session Manager plugin, and the errors of connections.
var (
	// FindPlugin finds the installed plugin.
	FindPlugin = aws.FindPlugin
	// InstallPlugin is the instruction to install the plugin.
	InstallPlugin = aws.InstallPlugin
	// ErrNoPlugin is returned when the plugin is not installed.
	ErrNoPlugin = aws.ErrNoPlugin
	// ErrNotOpened is returned when AWS opened no connection.
	ErrNotOpened = aws.ErrNotOpened
	// ErrUnconnected is returned when the machine is not connected to Systems Manager.
	ErrUnconnected = aws.ErrUnconnected
)

var (
	// ErrNoCredentials is returned when no credentials of AWS were found.
	ErrNoCredentials = aws.ErrNoCredentials
	signer           = aws.Signer
	// KeepByHand returns the provider's command that exempts a resource until a time.
	KeepByHand = aws.KeepByHand
)

// The IAM policies that curfew needs, as JSON documents.
var (
	ReadPolicy   = aws.PolicyJSON
	ActionPolicy = aws.ActionPolicyJSON
	// Partitions are the supported partitions.
	Partitions = aws.Partitions
	// PartitionOf returns the partition of regions.
	PartitionOf = aws.Partition
)

// memberRoles are the names of the roles that deploy/ creates in member accounts.
var memberRoles = []string{"curfew-read", "curfew-act"}

// Grants are the changes that the acting role may make.
type Grants = aws.Grants

// CentralPolicy returns the IAM policy, as a JSON document, that a service in its own account needs
// to read the accounts that the configuration names or finds; if it names none, those with the
// roles of deploy/.
func CentralPolicy(partition string, cfg config.Config) []byte {
	roles := slices.Clone(cfg.AWS.AssumeRoles)
	for _, a := range cfg.AWS.Accounts {
		if a.Role != "" {
			roles = append(roles, a.Role)
		}
	}
	org := cfg.AWS.Organization
	if org.Role != "" {
		roles = append(roles, org.Role)
	}
	if org.ListRole != "" {
		roles = append(roles, org.ListRole)
	}
	if len(roles) == 0 {
		roles = memberRoles
	}
	return aws.CentralPolicyJSON(partition, roles, org.Role != "" && org.ListRole == "")
}

// The CloudWatch requests of passes and their price.
var (
	WatchingPass    = aws.Watching
	ExplorerRequest = aws.ExplorerRequest
)

// OnMachine returns the AWS client of an agent with the role of its machine.
func OnMachine(ctx context.Context) (*aws.OnMachine, error) { return aws.NewOnMachine(ctx) }

// SpotPrice is the price of a machine type on the spot market.
type SpotPrice = aws.SpotPrice

// OpenAWS opens the account of a profile for everything except audits and actions: objects in
// buckets and price lists. Empty regions are those of the configuration.
func OpenAWS(ctx context.Context, cfg config.Config, profile string, regions []string) (*AWS, error) {
	if len(regions) == 0 {
		regions = cfg.AWS.Regions
	}
	return aws.New(ctx, aws.Options{
		Regions: regions, Profile: cmp.Or(profile, cfg.AWS.Profile), RequestsPerSecond: cfg.AWS.RequestsPerSecond,
	})
}

// roleARN is the form of an IAM role's ARN.
var roleARN = lazyregexp.New(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$`)

// OpenAccount opens the account of a source for audits and actions.
func OpenAccount(ctx context.Context, req *runtime.Request, f Source, cfg config.Config, book *price.Book) (*AWS,
	error) {
	o := aws.Options{
		Regions: cfg.AWS.Regions, AssumeRoles: cfg.AWS.AssumeRoles, ExternalID: cfg.AWS.ExternalID,
		Profile:           cfg.AWS.Profile,
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
			return nil, runtime.Invalid(
				"--assume-role %q: it is the ARN of a role such as arn:aws:iam::123456789012:role/audit", role)
		}
	}
	cloud, err := aws.New(ctx, o)
	if err == nil {
		return cloud, nil
	}
	err = CloudError(err)
	for _, region := range o.Regions {
		if f := (*runtime.Error)(nil); region != "all" && errors.As(err, &f) {
			f.Hint += document.DidYouMean(region, book.Regions())
		}
	}
	return nil, err
}

// awsImages are AWS's own images by machine architecture: with NVIDIA's driver for machines with a
// GPU, otherwise Amazon Linux. They are public parameters that name the newest image
// (docs/sessions.md).
var awsImages = struct{ gpu, plain map[string]string }{
	gpu: map[string]string{
		"x86_64": "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
		"arm64":  "/aws/service/deeplearning/ami/arm64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
	},
	plain: map[string]string{
		"x86_64": "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64",
		"arm64":  "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64",
	},
}

// OpenAWSMachines opens what launches and ends the machines of sessions: types and prices come from
// the price book, images and regions from the configuration, and the regions of existing machines
// from the records.
func OpenAWSMachines(ctx context.Context, req *runtime.Request, cfg config.Config,
	watched func(context.Context) ([]string, error)) (*AWSMachines, error) {
	book, err := req.PriceBook(cfg)
	if err != nil {
		return nil, err
	}
	regions := cmpSlice(cfg.Sessions.Regions, slices.DeleteFunc(slices.Clone(cfg.AWS.Regions), func(r string) bool {
		return r == "all"
	}))
	cloud, err := aws.New(ctx, aws.Options{
		Regions: regions, Profile: cfg.AWS.Profile, RequestsPerSecond: cfg.AWS.RequestsPerSecond, Size: book.Size,
	})
	if err != nil {
		return nil, CloudError(err)
	}
	return cloud.Launcher(aws.LaunchOptions{
		Regions: regions, Watched: watched, DiskGiB: estimate.DefaultDefaults().DiskGiB,
		Agent: aws.Agent{URL: cfg.Sessions.Agent.URL, SHA256: cfg.Sessions.Agent.SHA256},
		Types: func(s *spec.Spec) ([]string, error) { return estimate.TypeNames(s, book) },
		Rate:  book.MachineRate,
		Image: func(s *spec.Spec, machineType string) string {
			m, _ := book.Machine(machineType)
			images := awsImages.plain
			if m.Accelerator != "" || m.Type == "" { // an image that works for both, because the type is unknown
				images = awsImages.gpu
			}
			return cmp.Or(s.Image, cfg.Sessions.Image, images[cmp.Or(m.Arch, "x86_64")])
		},
	}), nil
}

func unknownRegion(err error) bool {
	var region *aws.RegionError
	return errors.As(err, &region)
}

// AWSCaller verifies the holder of AWS credentials.
func AWSCaller(req *runtime.Request, cfg config.Config) aws.Caller {
	return aws.Caller{Endpoint: cfg.Approvals.STSEndpoint, Now: req.Now}
}

// Know returns how far an action on AWS can be undone, and a note to read first.
func Know(r *inventory.Resource, do policy.Do) (undo, know string) { return aws.Know(r, do.Verb) }

// ByHand returns the provider's commands that carry out the fix of a finding; none if a person has
// to decide more than a command can express.
func ByHand(f view.Finding) []string {
	return aws.ByHand(aws.Subject{
		Kind: inventory.Kind(f.Resource.Kind), ID: f.Resource.ID, Type: f.Resource.Type, Account: f.Resource.Account,
		Region: f.Resource.Region}, f.Fix.Change)
}

func cmpSlice(lists ...[]string) []string {
	for _, l := range lists {
		if len(l) > 0 {
			return l
		}
	}
	return nil
}
