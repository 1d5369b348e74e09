package approval

import (
	"slices"
	"strings"
)

// The roles of the service, the least first: each may do what those before it may, but for
// approvals, which need the very role that a request names.
const (
	RoleViewer   = "viewer"
	RoleUser     = "user"
	RoleApprover = DefaultRole
	RoleOperator = "operator"
	RoleAdmin    = "admin"
)

// ServiceRoles are the roles of the service, the least first.
var ServiceRoles = []string{RoleViewer, RoleUser, RoleApprover, RoleOperator, RoleAdmin}

// SplitRole returns the role and the team that it is limited to: "approver@vision" is the
// role approver in the team vision. An empty team is all teams.
func SplitRole(held string) (role, team string) {
	role, team, _ = strings.Cut(held, "@")
	return role, team
}

// May reports whether a person who holds roles has one of those that are wanted for what
// belongs to a team. A role of one team counts for that team alone, and not for what
// belongs to none.
func May(held, wanted []string, team string) bool {
	return slices.ContainsFunc(held, func(h string) bool {
		role, of := SplitRole(h)
		return slices.Contains(wanted, role) && (h == role || of != "" && strings.EqualFold(of, team))
	})
}

// AtLeast are the roles of the service that may do what the least role may.
func AtLeast(least string) []string {
	return ServiceRoles[max(0, slices.Index(ServiceRoles, least)):]
}

// TeamsOf are the teams for which a person who holds roles has one of those that are wanted;
// all says that it is every team.
func TeamsOf(held, wanted []string) (teams []string, all bool) {
	for _, h := range held {
		role, team := SplitRole(h)
		switch {
		case !slices.Contains(wanted, role):
		case h == role:
			return nil, true
		case team != "":
			teams = append(teams, team)
		}
	}
	return teams, false
}

// Within are the held roles that limits allow: a limited role, or one of a team, passes where
// the same role or a greater one of the service is held for it.
func Within(held, limits []string) (out []string) {
	for _, want := range limits {
		role, team := SplitRole(want)
		enough := []string{role}
		if slices.Contains(ServiceRoles, role) && role != RoleApprover {
			enough = AtLeast(role)
		}
		if May(held, enough, team) && (team != "" || want == role) {
			out = append(out, want)
			continue
		}
		if team == "" { // what is held of it in some teams alone
			teams, _ := TeamsOf(held, enough)
			for _, t := range teams {
				out = append(out, role+"@"+t)
			}
		}
	}
	return out
}

// Roles returns the roles of a person, whose name may be spelled in any way.
func Roles(approvers map[string][]string, who string) []string {
	var roles []string
	for name, has := range approvers {
		if Same(name, who) {
			roles = append(roles, has...)
		}
	}
	return roles
}

// Approvers returns the names that have one of the roles for what belongs to a team, sorted,
// without who asks. No roles are the [DefaultRole].
func Approvers(approvers map[string][]string, roles []string, team, asker string) (names []string) {
	if len(roles) == 0 {
		roles = []string{DefaultRole}
	}
	for name, has := range approvers {
		if !MaybeSame(name, asker) && May(has, roles, team) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
