package aws

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudtrail"
	"github.com/aws/aws-sdk-go-v2/service/cloudtrail/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// makes lists the calls that create a resource, by kind, as named in CloudTrail.
var makes = map[inventory.Kind][]string{
	inventory.KindInstance:         {"RunInstances"},
	inventory.KindVolume:           {"CreateVolume", "RunInstances"},
	inventory.KindSnapshot:         {"CreateSnapshot", "CreateSnapshots"},
	inventory.KindImage:            {"CreateImage", "RegisterImage"},
	inventory.KindAddress:          {"AllocateAddress"},
	inventory.KindNATGateway:       {"CreateNatGateway"},
	inventory.KindLoadBalancer:     {"CreateLoadBalancer"},
	inventory.KindNotebook:         {"CreateNotebookInstance", "CreateApp"},
	inventory.KindEndpoint:         {"CreateEndpoint"},
	inventory.KindTrainingJob:      {"CreateTrainingJob"},
	inventory.KindAutoScalingGroup: {"CreateAutoScalingGroup"},
}

// trailPages bounds the events read for one resource, in pages of 50, newest first; events are kept
// for 90 days.
const trailPages = 4

// Creator returns the person who created a resource, from the events of the last 90 days; empty
// without such an event, or if the creator was a service, a machine or the account itself.
func (a *Actions) Creator(ctx context.Context, r *inventory.Resource) (string, error) {
	if makes[r.Kind] == nil {
		return "", nil
	}
	s, err := a.site(ctx, r.Ref())
	if err != nil {
		return "", err
	}
	return s.creator(ctx, r)
}

func (p *place) creator(ctx context.Context, r *inventory.Resource) (string, error) {
	in := &cloudtrail.LookupEventsInput{MaxResults: awssdk.Int32(50),
		LookupAttributes: []types.LookupAttribute{
			{AttributeKey: types.LookupAttributeKeyResourceName, AttributeValue: &r.ID},
		}}
	for range trailPages {
		out, err := trailClient(p.reading).LookupEvents(ctx, in)
		if err != nil {
			return "", failed("look up who made "+r.ID, err)
		}
		for _, e := range out.Events {
			if slices.Contains(makes[r.Kind], awssdk.ToString(e.EventName)) {
				return personOf(awssdk.ToString(e.CloudTrailEvent)), nil
			}
		}
		if in.NextToken = out.NextToken; in.NextToken == nil {
			break
		}
	}
	return "", nil
}

// eventIdentity is the caller in a CloudTrail event
// (https://docs.aws.amazon.com/awscloudtrail/latest/userguide/cloudtrail-event-reference-user-identity.html).
type eventIdentity struct {
	Type      string `json:"type"`
	UserName  string `json:"userName"`
	ARN       string `json:"arn"`
	InvokedBy string `json:"invokedBy"`
	Session   struct {
		Issuer struct {
			UserName string `json:"userName"`
		} `json:"sessionIssuer"`
	} `json:"sessionContext"`
}

// personOf returns the person of an event. A role session's name is chosen by its caller: it is
// used if the sign-in of people sets it, or if it is a mail address. Roles of services and machines
// are no people.
func personOf(event string) string {
	var e struct {
		Identity eventIdentity `json:"userIdentity"`
	}
	if json.Unmarshal([]byte(event), &e) != nil || e.Identity.InvokedBy != "" {
		return ""
	}
	switch id := e.Identity; id.Type {
	case "IAMUser", "SAMLUser", "WebIdentityUser":
		return id.UserName
	case "AssumedRole":
		name := id.ARN[strings.LastIndexByte(id.ARN, '/')+1:]
		if strings.HasPrefix(id.Session.Issuer.UserName, "AWSReservedSSO_") || strings.Contains(name, "@") {
			return name
		}
	}
	return ""
}
