package approval

import (
	"slices"
	"strings"
)

// The roles of the service in ascending order: each has the permissions of the previous ones,
// except approvals, which need exactly the role that a request names.
const (
	RoleViewer   = "viewer"
	RoleUser     = "user"
	RoleApprover = DefaultRole
	RoleOperator = "operator"
	RoleAdmin    = "admin"
)

// ServiceRoles are the roles of the service in ascending order.
var ServiceRoles = []string{RoleViewer, RoleUser, RoleApprover, RoleOperator, RoleAdmin}

// SplitRole returns a role and the team that it is limited to: "approver@vision" is the role
// approver in the team vision. An empty team means all teams.
func SplitRole(held string) (role, team string) {
	role, team, _ = strings.Cut(held, "@")
	return role, team
}

// May reports whether a person who holds roles has a wanted one for something of a team. A role
// limited to a team applies only to that team, and not to unallocated things.
func May(held, wanted []string, team string) bool {
	return slices.ContainsFunc(held, func(h string) bool {
		role, of := SplitRole(h)
		return slices.Contains(wanted, role) && (h == role || of != "" && strings.EqualFold(of, team))
	})
}

// AtLeast returns the service roles that include the permissions of a role.
func AtLeast(least string) []string {
	return ServiceRoles[max(0, slices.Index(ServiceRoles, least)):]
}

// TeamsOf returns the teams for which the held roles include a wanted one; all means every team.
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

// Within returns the held roles restricted by limits: a limit, also one with a team, passes if the
// same or a greater service role is held for it.
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
		if team == "" { // held for some teams only
			teams, _ := TeamsOf(held, enough)
			for _, t := range teams {
				out = append(out, role+"@"+t)
			}
		}
	}
	return out
}

// Roles returns the roles of a person under any spelling of the name.
func Roles(approvers map[string][]string, who string) []string {
	var roles []string
	for name, has := range approvers {
		if Same(name, who) {
			roles = append(roles, has...)
		}
	}
	return roles
}

// Approvers returns the sorted names that have one of the roles for a team, except the requester.
// No roles means the [DefaultRole].
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
