package approval

import "slices"

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

// Approvers returns the names that have one of the roles, sorted, without who asks. No
// roles are the [DefaultRole].
func Approvers(approvers map[string][]string, roles []string, asker string) (names []string) {
	if len(roles) == 0 {
		roles = []string{DefaultRole}
	}
	for name, has := range approvers {
		if !MaybeSame(name, asker) && slices.ContainsFunc(has, func(r string) bool { return slices.Contains(roles, r) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
