package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// Organization finds the accounts that curfew serve reads by AWS Organizations.
type Organization struct {
	// Role is the name of the role, with its path, that reads and acts in each member account;
	// empty asks no organization. The account of the credentials is read without it.
	Role string `yaml:"role"`
	// ListRole is the ARN of a role that lists the accounts, in the management account or in
	// that of a delegated administrator; empty is the credentials.
	ListRole string `yaml:"list_role"`
	// Regions are the regions to read in each account, or all; empty is those of aws.regions.
	Regions []string `yaml:"regions"`
	// Exclude are the ids of accounts that are left out.
	Exclude []string `yaml:"exclude"`
	// Refresh is the time after which the accounts are listed again.
	Refresh time.Duration `yaml:"refresh"`
}

var (
	rolePath  = lazyregexp.New(`^/?([\w+=,.@-]+/)*[\w+=,.@-]{1,64}$`)
	roleARN   = lazyregexp.New(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$`)
	accountID = lazyregexp.New(`^[0-9]{12}$`)
)

// check returns an error for an invalid section, and its key.
func (o Organization) check() (key string, err error) {
	const at = "aws.organization."
	for _, id := range o.Exclude {
		if !accountID.MatchString(id) {
			return at + "exclude", fmt.Errorf("%q: it is the id of an account, twelve digits in quotes", id)
		}
	}
	switch {
	case o.Role == "" && (o.ListRole != "" || len(o.Regions)+len(o.Exclude) > 0):
		return "aws.organization", errors.New("it needs the role, by its name, that reads each member account")
	case o.Role != "" && !rolePath.MatchString(o.Role):
		return at + "role", fmt.Errorf("%q: it is the name of a role such as curfew-read", o.Role)
	case o.ListRole != "" && !roleARN.MatchString(o.ListRole):
		return at + "list_role", fmt.Errorf(
			"%q: it is the ARN of a role such as arn:aws:iam::123456789012:role/curfew-list",
			o.ListRole)
	}
	return "", nil
}
