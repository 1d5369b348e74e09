package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/organizations"
	"github.com/aws/aws-sdk-go-v2/service/organizations/types"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// Member is an account of an organization.
type Member struct {
	ID, Name string
	// Own is true for the account of the configured credentials.
	Own bool
	// partition is that of its ARN.
	partition string
}

// Role returns the ARN of a role in the account, by name and path.
func (m Member) Role(name string) string {
	return "arn:" + m.partition + ":iam::" + m.ID + ":role/" + strings.TrimPrefix(name, "/")
}

// organizationPage is the maximum page size (API reference of AWS Organizations).
const organizationPage = 20

var accountID = lazyregexp.New(`^[0-9]{12}$`)

// Organization lists the active accounts of the organization in order, with the role of AssumeRoles
// if given, else with the credentials. Accounts that are suspended, closing or not yet active are
// excluded. An unreadable organization is an error, never an empty list.
func (c *Cloud) Organization(ctx context.Context) ([]Member, error) {
	s := &scan{cloud: c, tally: newTally(), limits: c.limits()}
	all, err := s.accounts(ctx)
	if err != nil {
		return nil, err
	}
	// The first account is that of the credentials, unless a role is to be used.
	by, own := all[0], all[0].id
	if by.role != "" {
		base := &account{cfg: c.config}
		if err := s.identify(ctx, base); err != nil {
			return nil, err
		}
		own = base.id
	}
	cfg := by.cfg.Copy()
	cfg.Region = c.home()
	cfg.APIOptions = append(cfg.APIOptions[:len(cfg.APIOptions):len(cfg.APIOptions)],
		guard("organizations", s.tally, s.limits.of(by.role, cfg.Region, "organizations")))
	client := organizations.NewFromConfig(cfg)
	var out []Member
	err = pages(ctx, func(token *string) (*string, error) {
		answer, err := client.ListAccounts(ctx, &organizations.ListAccountsInput{
			MaxResults: awssdk.Int32(organizationPage), NextToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, a := range answer.Accounts {
			id := awssdk.ToString(a.Id)
			if !accountID.MatchString(id) {
				return nil, fmt.Errorf("%q is no id of an account", id)
			}
			if !activeAccount(a) {
				continue
			}
			out = append(out, Member{
				ID: id, Name: awssdk.ToString(a.Name), Own: id == own,
				partition: partitionOfARN(awssdk.ToString(a.Arn)),
			})
		}
		return answer.NextToken, nil
	})
	if err == nil && len(out) == 0 { // the management account is always in the list
		err = errors.New("it has no active account")
	}
	if err != nil {
		return nil, fetchError(ctx, "list the accounts of the organization", err)
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b Member) bool { return a.ID == b.ID }), nil
}

// activeAccount reports whether an account is in use. State replaces Status, which AWS retires (API
// reference, Account).
func activeAccount(a types.Account) bool {
	if a.State != "" {
		return a.State == types.AccountStateActive
	}
	return a.Status == types.AccountStatusActive
}

// partitionOfARN returns the partition of an ARN; "aws" if unknown.
func partitionOfARN(arn string) string {
	parts := strings.SplitN(arn, ":", 3)
	if len(parts) < 3 || parts[0] != "arn" || parts[1] == "" {
		return "aws"
	}
	return parts[1]
}

// CentralPolicyJSON returns the IAM policy of a service's central account, in addition to the one
// for its own account, as indented JSON with a final newline: assuming the given roles, by ARN or
// by name in any account of a partition, and with list, listing the accounts of an organization.
func CentralPolicyJSON(partition string, roles []string, list bool) []byte {
	var all []statement
	if list {
		all = append(all, statement{
			Sid: "CurfewOrganization", Effect: "Allow",
			Action: index["organizations:ListAccounts"].IAM(), Resource: "*",
		})
	}
	arns := make([]string, 0, len(roles))
	for _, role := range roles {
		if !strings.HasPrefix(role, "arn:") {
			role = "arn:" + partition + ":iam::*:role/" + strings.TrimPrefix(role, "/")
		}
		arns = append(arns, role)
	}
	if arns = sorted(arns); len(arns) > 0 {
		all = append(all, statement{
			Sid: "CurfewAssume", Effect: "Allow", Action: []string{"sts:AssumeRole"}, Resource: arns,
		})
	}
	return policyJSON(all...)
}
