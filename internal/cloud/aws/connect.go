package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// SSM documents of connections. Shells use the backbone's own document, which records them.
const (
	documentPort = "AWS-StartPortForwardingSession"
	documentSSH  = "AWS-StartSSHSession"
)

// Connector opens and closes Systems Manager connections to machines, with the person's
// credentials. It makes only the calls in [ConnectCalls]. It is safe for concurrent use.
type Connector struct {
	cloud   *Cloud
	limits  *limits
	clients clientCache[string]
}

// Connector returns a [Connector] for the machines of c. It makes no call.
func (c *Cloud) Connector() *Connector {
	return &Connector{cloud: c, limits: c.limits()}
}

func (c *Connector) config(region, service string) awssdk.Config {
	cfg := c.cloud.config.Copy()
	cfg.Region = region
	cfg.APIOptions = append(cfg.APIOptions[:len(cfg.APIOptions):len(cfg.APIOptions)],
		guardConnects(service, c.limits.of("", region, service)))
	return cfg
}

// at returns the clients of a region.
func (c *Connector) at(region string) *clients {
	return c.clients.get(region, func(service string) awssdk.Config { return c.config(region, service) })
}

// Whose holds the owner of a machine, from its tags.
type Whose struct {
	// Session is its session, Person the identity that may connect to it ([TagPerson]); empty if
	// untagged.
	Session, Person string
	Running         bool
}

// Whose reads the owner of a machine; it fails if EC2 does not list the machine.
func (c *Connector) Whose(ctx context.Context, region, machine string) (Whose, error) {
	attempt := "read the tags of " + machine
	out, err := ec2Client(c.at(region)).DescribeInstances(ctx, &ec2.DescribeInstancesInput{
		InstanceIds: []string{machine},
	})
	if err != nil {
		return Whose{}, wrapped(attempt, err)
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			if awssdk.ToString(i.InstanceId) == machine {
				tags := ec2Tags(i.Tags)
				return Whose{
					Session: tags[inventory.TagSession], Person: tags[TagPerson],
					Running: stateOf(i) == types.InstanceStateNameRunning,
				}, nil
			}
		}
	}
	return Whose{}, fmt.Errorf("%s: %w", attempt, errNoMachine)
}

var errNoMachine = errors.New("there is no such machine in this account and region")

// Person is the owner of the credentials.
type Person struct {
	// ID is the condition key aws:userid: "AIDA…" of a user, "AROA…:session" of a role.
	ID, Account, ARN string
}

// Person asks AWS for the owner of the credentials.
func (c *Connector) Person(ctx context.Context, region string) (Person, error) {
	out, err := stsClient(c.at(region)).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return Person{}, wrapped("ask AWS whose credentials these are", err)
	}
	return Person{
		ID: awssdk.ToString(out.UserId), Account: awssdk.ToString(out.Account), ARN: awssdk.ToString(out.Arn),
	}, nil
}

// Way is the target of a connection. The zero Way is a shell.
type Way struct {
	// SSH is the machine's SSH port: the plugin's standard input and output carry the stream.
	SSH int
	// Port is a port of the machine, and Local the local port forwarded to it.
	Port, Local int
}

// Opened is an open connection, which must be closed.
type Opened struct {
	Region, Machine string
	// ID is AWS's ID of the connection.
	ID string
	// response and request are passed to the plugin, with the endpoint of Systems Manager and the
	// profile of the credentials.
	response, request         []byte
	endpoint, profile, reason string
}

// Open opens a connection. AWS stores the reason, by which a process killed before it learned the
// ID can find the connection ([Connector.Left]). The call is not retried, because that would open a
// second connection.
func (c *Connector) Open(ctx context.Context, region, machine string, way Way, reason string) (*Opened, error) {
	in := &ssm.StartSessionInput{Target: awssdk.String(machine), Reason: awssdk.String(reason)}
	switch {
	case way.Port > 0:
		in.DocumentName = awssdk.String(documentPort)
		in.Parameters = map[string][]string{
			"portNumber": {strconv.Itoa(way.Port)}, "localPortNumber": {strconv.Itoa(way.Local)},
		}
	case way.SSH > 0:
		in.DocumentName = awssdk.String(documentSSH)
		in.Parameters = map[string][]string{"portNumber": {strconv.Itoa(way.SSH)}}
	default:
		document, err := c.document(ctx, region)
		if err != nil {
			return nil, err
		}
		in.DocumentName = awssdk.String(document)
	}
	attempt := "connect to " + machine
	client := ssmClient(c.at(region))
	out, err := client.StartSession(ctx, in, func(o *ssm.Options) {
		o.Retryer = retry.AddWithMaxAttempts(o.Retryer, 1)
	})
	if err != nil {
		return nil, notOpened(attempt, err)
	}
	if awssdk.ToString(out.SessionId) == "" {
		return nil, unclear(attempt)
	}
	o := &Opened{
		Region: region, Machine: machine, ID: *out.SessionId, profile: c.cloud.options.Profile, reason: reason,
	}
	request := map[string]any{"Target": machine, "DocumentName": *in.DocumentName, "Reason": reason}
	if in.Parameters != nil {
		request["Parameters"] = in.Parameters
	}
	o.request, err = json.Marshal(request)
	if err == nil {
		o.response, err = json.Marshal(map[string]string{
			"SessionId": o.ID, "TokenValue": awssdk.ToString(out.TokenValue),
			"StreamUrl": awssdk.ToString(out.StreamUrl),
		})
	}
	if err != nil {
		return o, fmt.Errorf("%s: %w", attempt, err)
	}
	o.endpoint, err = endpointOf(ctx, client.Options(), region)
	return o, err
}

// Errors of [Connector.Open].
var (
	// ErrNotOpened means that AWS opened nothing. After any other error this is unknown.
	ErrNotOpened = errors.New("AWS opened no connection")
	// ErrUnconnected means that the machine's Systems Manager agent does not respond, for example
	// just after the start. It is also an ErrNotOpened.
	ErrUnconnected = errors.New("the machine is not connected to Systems Manager")
)

// notOpened converts the error of StartSession.
func notOpened(attempt string, err error) error {
	kind, detail := reason(err)
	switch said := joined(kind, detail); {
	case is(err, "TargetNotConnected"):
		return fmt.Errorf("%s: %w (%w)", attempt, ErrUnconnected, ErrNotOpened)
	case code(err) != "" && statusOf(err) < 500:
		return fmt.Errorf("%s: %w: %w (%s)", attempt, ErrNotOpened, kindOf(err), said)
	}
	return wrapped(attempt, err)
}

// endpointOf returns the Systems Manager endpoint of a region.
func endpointOf(ctx context.Context, o ssm.Options, region string) (string, error) {
	if o.BaseEndpoint != nil {
		return *o.BaseEndpoint, nil
	}
	e, err := ssm.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, ssm.EndpointParameters{
		Region: awssdk.String(region),
	})
	if err != nil {
		return "", fmt.Errorf("find Systems Manager of %s: %w", region, err)
	}
	return strings.TrimSuffix(e.URI.String(), "/"), nil
}

// document returns the backbone's document for shells. People may read single parameters, but not
// list their path.
func (c *Connector) document(ctx context.Context, region string) (string, error) {
	const name = BackbonePath + "session-document"
	out, err := ssmClient(c.at(region)).GetParameters(ctx, &ssm.GetParametersInput{Names: []string{name}})
	if err != nil {
		return "", wrapped("read the backbone of "+region, err)
	}
	if len(out.Parameters) != 1 || awssdk.ToString(out.Parameters[0].Value) == "" {
		return "", fmt.Errorf(
			"read the backbone of %s: parameter %s is missing: apply terraform/backbone in this region",
			region, name)
	}
	return *out.Parameters[0].Value, nil
}

// Close closes a connection, which may have ended already.
func (c *Connector) Close(ctx context.Context, region, id string) error {
	_, err := ssmClient(c.at(region)).TerminateSession(ctx, &ssm.TerminateSessionInput{SessionId: awssdk.String(id)})
	if err != nil && !is(err, "DoesNotExistException") {
		return wrapped("end connection "+id, err)
	}
	return nil
}

// active visits the open connections to a machine.
func (c *Connector) active(ctx context.Context, region, machine string, visit func(ssmtypes.Session)) error {
	return pages(ctx, func(token *string) (*string, error) {
		out, err := ssmClient(c.at(region)).DescribeSessions(ctx, &ssm.DescribeSessionsInput{
			State: ssmtypes.SessionStateActive, NextToken: token,
			Filters: []ssmtypes.SessionFilter{
				{Key: ssmtypes.SessionFilterKeyTargetId, Value: awssdk.String(machine)},
			}})
		if err != nil {
			return nil, err
		}
		for _, s := range out.Sessions {
			visit(s)
		}
		return out.NextToken, nil
	})
}

// Left returns the open connections to a machine with a given reason.
func (c *Connector) Left(ctx context.Context, region, machine, reason string) (ids []string, err error) {
	err = c.active(ctx, region, machine, func(s ssmtypes.Session) {
		if awssdk.ToString(s.Reason) == reason {
			ids = append(ids, awssdk.ToString(s.SessionId))
		}
	})
	if err != nil {
		return nil, wrapped("look for connections to "+machine, err)
	}
	return ids, nil
}

// open reports whether AWS shows a connection as open.
func (c *Connector) open(ctx context.Context, o *Opened) (bool, error) {
	found := false
	err := c.active(ctx, o.Region, o.Machine, func(s ssmtypes.Session) {
		ended := s.Status == ssmtypes.SessionStatusTerminated || s.Status == ssmtypes.SessionStatusTerminating ||
			s.Status == ssmtypes.SessionStatusFailed
		found = found || awssdk.ToString(s.SessionId) == o.ID && !ended
	})
	return found, err
}

// watchEvery is the default interval for polling a connection's state.
const watchEvery = 30 * time.Second
