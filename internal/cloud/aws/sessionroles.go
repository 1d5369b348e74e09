package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/wait"
)

// RolePath is the path prefix of session roles, followed by installation and session: IAM lists
// roles by path, and without their tags.
const RolePath = "/curfew/sessions/"

// rolePath returns the path of the roles of an installation's session; "" for all its sessions.
func rolePath(installation, id string) string {
	if id == "" {
		return RolePath + installation + "/"
	}
	return RolePath + installation + "/" + id + "/"
}

// roleName returns the name of the role, and instance profile, of a session's machines in a region.
// The machine policy belongs to a regional backbone, so each region has its own role.
func roleName(id, region string) string { return "curfew-" + id + "-" + region }

// maxRoleName is the maximum length of a role's name.
const maxRoleName = 64

// plainName matches IDs and names that a role can be made for. They are used in paths of roles and
// objects, so they must not contain a slash, wildcard or policy variable.
var plainName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// roleTags returns the tags of a session's role, from which the machine policy derives the prefixes
// that a machine may use.
func roleTags(want session.Launch) (map[string]string, error) {
	tags := map[string]string{
		inventory.TagInstallation: want.Tags[inventory.TagInstallation],
		inventory.TagSession:      want.Session.ID,
		session.TagName:           want.Session.Name,
	}
	for key, value := range tags {
		if !plainName.MatchString(value) {
			return nil, fmt.Errorf(
				"%s is %q: a role is made for letters, digits, dots, dashes and underscores alone: %w", key,
				value, session.ErrNoRole)
		}
	}
	if value := want.Tags[session.TagAllowedUser]; value != "" {
		tags[session.TagAllowedUser] = tagValue(value)
	}
	return tags, nil
}

// tagValue replaces characters that IAM does not allow in tags by underscores.
func tagValue(value string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || r == ' ' || strings.ContainsRune("_.:/=+-@", r) {
			return r
		}
		return '_'
	}, value)
}

func iamTags(tags map[string]string) []types.Tag {
	var out []types.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, types.Tag{Key: awssdk.String(k), Value: awssdk.String(tags[k])})
	}
	return out
}

// machineTrust allows only EC2 to assign the role to a machine.
const machineTrust = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"Service":"ec2.amazonaws.com"}}]}`

// makeRole creates the role of a session's machines, with the machine policy both as its
// permissions and as its boundary, and returns the ARN of its instance profile. It is idempotent:
// an existing role is checked and used. It returns [session.ErrNoRole] if IAM refuses it.
func (l *Launcher) makeRole(ctx context.Context, want session.Launch, b *Backbone) (profile string, err error) {
	tags, err := roleTags(want)
	if err != nil {
		return "", err
	}
	api, name := iamClient(l.at(want.Pool.Region)), roleName(want.Session.ID, want.Pool.Region)
	path := rolePath(tags[inventory.TagInstallation], want.Session.ID)
	if len(name) > maxRoleName {
		return "", fmt.Errorf("the name %s of its role is longer than %d characters: %w", name, maxRoleName,
			session.ErrNoRole)
	}
	attempt := "make role " + name
	_, err = api.CreateRole(ctx, &iam.CreateRoleInput{
		RoleName:                 awssdk.String(name),
		Path:                     awssdk.String(path),
		Description:              awssdk.String("Machines of curfew session " + want.Session.Name),
		AssumeRolePolicyDocument: awssdk.String(machineTrust),
		PermissionsBoundary:      awssdk.String(b.MachinePolicy),
		Tags:                     iamTags(tags),
	})
	switch {
	case is(err, "EntityAlreadyExists"):
		err = l.checkRole(ctx, want.Pool.Region, name, path, b.MachinePolicy, tags)
	case is(err, "NoSuchEntity"): // a new role may not be visible yet
		err = fmt.Errorf("there is no policy %s: %w", b.MachinePolicy, session.ErrNoRole)
	}
	if err != nil {
		return "", roleError(attempt, err)
	}
	if _, err := api.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{
		RoleName:  awssdk.String(name),
		PolicyArn: awssdk.String(b.MachinePolicy),
	}); err != nil {
		return "", roleError(attempt, err)
	}
	made, err := api.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
		InstanceProfileName: awssdk.String(name),
		Path:                awssdk.String(path),
		Tags:                iamTags(tags),
	})
	var found *types.InstanceProfile
	switch {
	case err == nil:
		found = made.InstanceProfile
	case is(err, "EntityAlreadyExists"):
		out, err := api.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: awssdk.String(name)})
		if err != nil {
			return "", roleError(attempt, err)
		}
		found = out.InstanceProfile
	default:
		return "", roleError(attempt, err)
	}
	if found == nil || awssdk.ToString(found.Arn) == "" {
		return "", unclear(attempt)
	}
	switch names := profileRoles(found); {
	case awssdk.ToString(found.Path) != path, len(names) > 0 && !slices.Equal(names, []string{name}):
		return "", fmt.Errorf("%s: instance profile %s is there and holds %q: %w", attempt, awssdk.ToString(found.Arn),
			names, session.ErrNoRole)
	case len(names) == 1:
		return *found.Arn, nil
	}
	_, err = api.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{
		InstanceProfileName: awssdk.String(name),
		RoleName:            awssdk.String(name),
	})
	if err != nil {
		return "", roleError(attempt, err)
	}
	return *found.Arn, nil
}

func profileRoles(p *types.InstanceProfile) (names []string) {
	for _, r := range p.Roles {
		names = append(names, awssdk.ToString(r.RoleName))
	}
	return names
}

// checkRole returns an error if an existing role differs from the one that would have been made.
func (l *Launcher) checkRole(ctx context.Context, region, name, path, boundary string, tags map[string]string) error {
	out, err := iamClient(l.at(region)).GetRole(ctx, &iam.GetRoleInput{RoleName: awssdk.String(name)})
	if err != nil {
		return err
	}
	has := map[string]string{}
	if out.Role != nil {
		for _, t := range out.Role.Tags {
			has[awssdk.ToString(t.Key)] = awssdk.ToString(t.Value)
		}
	}
	switch {
	case out.Role == nil, awssdk.ToString(out.Role.Path) != path:
		return fmt.Errorf("a role of this name is there outside of %s: %w", path, session.ErrNoRole)
	case out.Role.PermissionsBoundary == nil ||
		awssdk.ToString(out.Role.PermissionsBoundary.PermissionsBoundaryArn) != boundary:
		return fmt.Errorf("a role of this name is there without the boundary %s: %w", boundary, session.ErrNoRole)
	case !maps.Equal(has, tags):
		return fmt.Errorf("a role of this name is there with other tags: %w", session.ErrNoRole)
	}
	return nil
}

// roleError classifies an error of IAM: a refusal is [session.ErrNoRole], an account limit
// [session.ErrQuota]. After any other error the next call may succeed.
func roleError(attempt string, err error) error {
	switch {
	case errors.Is(err, session.ErrNoRole):
		return fmt.Errorf("%s: %w", attempt, err)
	case is(err, "LimitExceeded"):
		_, detail := reason(err)
		return fmt.Errorf("%s: %w (%s); raise the quotas of roles and instance profiles in Service Quotas of IAM",
			attempt,
			session.ErrQuota, detail)
	}
	wrong := wrapped(attempt, err)
	if errors.Is(wrong, inventory.ErrDenied) || is(err, "ValidationError", "InvalidInput") {
		return fmt.Errorf(
			"%w: %w: apply terraform/backbone of this release, whose launching role may make roles below %s",
			wrong, session.ErrNoRole, RolePath)
	}
	return wrong
}

// The maximum wait of a launch for EC2 to see a new instance profile. A slower launch is repeated
// with its token.
const (
	profilePatience = 40 * time.Second
	profilePause    = 500 * time.Millisecond
	maxProfilePause = 4 * time.Second
)

// unseenProfile reports whether EC2 refused a launch because it does not see the instance profile,
// or its role, yet: changes in IAM take seconds to propagate (IAM User Guide, "Changes that I make
// are not always immediately visible").
func unseenProfile(err error) bool {
	if !is(err, "InvalidParameterValue") {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "Invalid IAM Instance Profile") ||
		strings.Contains(text, "has no associated IAM Roles")
}

// withProfile repeats a launch until EC2 sees its instance profile.
func withProfile[T any](ctx context.Context, launch func() (T, error)) (T, error) {
	pause, waited := profilePause, time.Duration(0)
	for {
		out, err := launch()
		if !unseenProfile(err) || waited >= profilePatience {
			return out, err
		}
		if wait.For(ctx, pause) != nil {
			return out, err
		}
		waited += pause
		pause = min(2*pause, maxProfilePause)
	}
}

// Roles implements [session.RoleLister]. A role and an instance profile of the same name count
// once.
func (l *Launcher) Roles(ctx context.Context, installation string) ([]session.Role, error) {
	if !plainName.MatchString(installation) {
		return nil, fmt.Errorf("list the roles of sessions: %q names no installation", installation)
	}
	roles, profiles, err := l.rolesBelow(ctx, rolePath(installation, ""))
	if err != nil {
		return nil, err
	}
	byName := map[string]session.Role{}
	add := func(name, path string, created *time.Time) {
		id, _, _ := strings.Cut(strings.TrimPrefix(path, rolePath(installation, "")), "/")
		if _, known := byName[name]; !known && id != "" {
			byName[name] = session.Role{Session: id, Name: name, CreatedAt: utc(created)}
		}
	}
	for _, r := range roles {
		add(awssdk.ToString(r.RoleName), awssdk.ToString(r.Path), r.CreateDate)
	}
	for _, p := range profiles {
		add(awssdk.ToString(p.InstanceProfileName), awssdk.ToString(p.Path), p.CreateDate)
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b session.Role) int {
		return strings.Compare(a.Name, b.Name)
	}), nil
}

// rolesBelow lists the roles and instance profiles below a path, ignoring others in the response.
func (l *Launcher) rolesBelow(ctx context.Context, path string) (roles []types.Role, profiles []types.InstanceProfile,
	err error) {
	api := iamClient(l.at(l.cloud.first()))
	err = pages(ctx, func(marker *string) (*string, error) {
		out, err := api.ListInstanceProfiles(ctx, &iam.ListInstanceProfilesInput{
			PathPrefix: awssdk.String(path), Marker: marker,
		})
		if err != nil {
			return nil, err
		}
		for _, p := range out.InstanceProfiles {
			if strings.HasPrefix(awssdk.ToString(p.Path), path) {
				profiles = append(profiles, p)
			}
		}
		return out.Marker, nil
	})
	if err != nil {
		return nil, nil, wrapped("list the instance profiles below "+path, err)
	}
	err = pages(ctx, func(marker *string) (*string, error) {
		out, err := api.ListRoles(ctx, &iam.ListRolesInput{PathPrefix: awssdk.String(path), Marker: marker})
		if err != nil {
			return nil, err
		}
		for _, r := range out.Roles {
			if strings.HasPrefix(awssdk.ToString(r.Path), path) {
				roles = append(roles, r)
			}
		}
		return out.Marker, nil
	})
	if err != nil {
		return nil, nil, wrapped("list the roles below "+path, err)
	}
	return roles, profiles, nil
}

// removeRoles deletes the roles of a session and their instance profiles, and returns the remaining
// ones with the reason. Its machines are already gone.
func (l *Launcher) removeRoles(ctx context.Context, installation, id string) (left []string, err error) {
	if !plainName.MatchString(installation) || !plainName.MatchString(id) {
		return nil, nil // no role was made
	}
	roles, profiles, err := l.rolesBelow(ctx, rolePath(installation, id))
	if err != nil {
		return nil, err
	}
	api := iamClient(l.at(l.cloud.first()))
	gone := func(err error) error {
		if is(err, "NoSuchEntity") {
			return nil
		}
		return err
	}
	for _, p := range profiles {
		var err error
		for _, role := range profileRoles(&p) {
			_, e := api.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{
				InstanceProfileName: p.InstanceProfileName, RoleName: awssdk.String(role),
			})
			err = errors.Join(err, gone(e))
		}
		if err == nil {
			_, err = api.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{
				InstanceProfileName: p.InstanceProfileName,
			})
		}
		if gone(err) != nil {
			left = append(left, wrapped("instance profile "+awssdk.ToString(p.InstanceProfileName), err).Error())
		}
	}
	for _, r := range roles {
		if err := l.removeRole(ctx, awssdk.ToString(r.RoleName)); gone(err) != nil {
			left = append(left, wrapped("role "+awssdk.ToString(r.RoleName), err).Error())
		}
	}
	return left, nil
}

// removeRole deletes a role after removing its policies.
func (l *Launcher) removeRole(ctx context.Context, name string) error {
	api := iamClient(l.at(l.cloud.first()))
	err := pages(ctx, func(marker *string) (*string, error) {
		out, err := api.ListAttachedRolePolicies(ctx, &iam.ListAttachedRolePoliciesInput{
			RoleName: awssdk.String(name), Marker: marker,
		})
		if err != nil {
			return nil, err
		}
		for _, p := range out.AttachedPolicies {
			_, err := api.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{
				RoleName: awssdk.String(name), PolicyArn: p.PolicyArn,
			})
			if err != nil && !is(err, "NoSuchEntity") {
				return nil, err
			}
		}
		return out.Marker, nil
	})
	if err == nil {
		_, err = api.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: awssdk.String(name)})
	}
	return err
}

// CheckPlaces returns an error if the documents or work of a session are in the backbone's bucket
// outside of the prefixes that the session's role may use. Permissions of other buckets are left to
// their owners.
func (b *Backbone) CheckPlaces(installation, id, name, control, work string) error {
	for _, p := range []struct{ what, at, own string }{
		{"documents", control, b.ControlPrefix() + "/" + id},
		{"work", work, b.WorkPrefix(installation) + "/" + name},
	} {
		at := strings.TrimSuffix(p.at, "/")
		if p.at != "" && strings.HasPrefix(at+"/", "s3://"+b.Bucket+"/") && at != p.own &&
			!strings.HasPrefix(at, p.own+"/") {
			return fmt.Errorf(
				"the %s of session %s would be at %s, where its machines may not write: they use %s in this bucket: %w", p.what,
				name, p.at, p.own, session.ErrNoRole)
		}
	}
	return nil
}

// ControlPrefix returns the prefix of sessions' control documents, by session ID. WorkPrefix
// returns the prefix of an installation's work, by session name.
func (b *Backbone) ControlPrefix() string { return "s3://" + b.Bucket + "/sessions/control" }

// WorkPrefix is described at [Backbone.ControlPrefix].
func (b *Backbone) WorkPrefix(installation string) string {
	return "s3://" + b.Bucket + "/sessions/work/" + installation
}

// MachineNames are the backbone resources named by the machine policy.
type MachineNames struct {
	// Partition, Region and Account are those of the backbone.
	Partition, Region, Account string
	// Sessions is the ARN of the sessions' bucket, Repository of the images, Key of the key of
	// logs.
	Sessions, Repository, Key string
	// Logs and Data are the ARNs of log streams that machines write, and of datasets that they
	// read.
	Logs, Data []string
}

// Variables of the machine policy: tags of the role ([roleTags]).
const (
	ofSession      = "${aws:PrincipalTag/" + inventory.TagSession + "}"
	ofInstallation = "${aws:PrincipalTag/" + inventory.TagInstallation + "}"
	ofName         = "${aws:PrincipalTag/" + session.TagName + "}"
)

// MachinePolicy returns the statements of the machine policy, which is both the permissions and the
// boundary of a session's role. Prefixes end with a slash, so that the session "demo" does not
// match "demo2".
func MachinePolicy(n MachineNames) []Statement {
	control := n.Sessions + "/sessions/control/" + ofSession + "/"
	work := n.Sessions + "/sessions/work/" + ofInstallation + "/" + ofName + "/"
	ssm := "arn:" + n.Partition + ":ssm:" + n.Region + ":" + n.Account + ":parameter/curfew/"
	secret := "arn:" + n.Partition + ":secretsmanager:" + n.Region + ":" + n.Account + ":secret:curfew/sessions/"
	prefix := func(arn string) string { return strings.TrimPrefix(arn, n.Sessions+"/") }
	all := []Statement{
		{Sid: "ReadControl", Effect: "Allow", Action: []string{"s3:GetObject"}, Resource: []string{control + "*"}},
		{
			Sid: "WriteControl", Effect: "Allow", Action: []string{"s3:PutObject"},
			Resource: []string{control + "events-*", control + "status-*"},
		},
		{
			Sid: "Work", Effect: "Allow", Action: []string{"s3:DeleteObject", "s3:GetObject", "s3:PutObject"},
			Resource: []string{work + "*"},
		},
		{Sid: "ListOwn", Effect: "Allow", Action: []string{"s3:ListBucket"}, Resource: []string{n.Sessions},
			Condition: map[string]map[string]any{
				"StringLike": {"s3:prefix": []string{prefix(control) + "*", prefix(work) + "*"}},
			}},
		{
			Sid: "ReadAgent", Effect: "Allow", Action: []string{"s3:GetObject"},
			Resource: []string{n.Sessions + "/sessions/bin/*"},
		},
		{
			Sid: "ReadImages", Effect: "Allow",
			Action:   []string{"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"},
			Resource: []string{n.Repository},
		},
		{Sid: "ReadParameters", Effect: "Allow", Action: []string{"ssm:GetParameter", "ssm:GetParameters"},
			Resource: []string{
				ssm + "backbone/*", ssm + "sessions/shared/*", ssm + "sessions/names/" + ofName + "/*",
			}},
		{
			Sid: "ReadSecrets", Effect: "Allow", Action: []string{"secretsmanager:GetSecretValue"},
			Resource: []string{secret + "shared/*", secret + "names/" + ofName + "/*"},
		},
		{
			Sid: "WriteLogs", Effect: "Allow",
			Action: []string{"logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"}, Resource: n.Logs,
		},
		{
			Sid: "Key", Effect: "Allow", Action: []string{"kms:Decrypt", "kms:GenerateDataKey"},
			Resource: []string{n.Key},
		},
		// These actions of Systems Manager have no resources.
		{
			Sid: "Agent", Effect: "Allow", Action: []string{
				"ecr:GetAuthorizationToken", "logs:DescribeLogGroups", "ssm:UpdateInstanceInformation",
				"ssmmessages:CreateControlChannel",
				"ssmmessages:CreateDataChannel", "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"},
			Resource: []string{"*"}},
		{
			Sid: "NeverOrders", Effect: "Deny", Action: []string{
				"ec2-instance-connect:*", "ec2:CreateTags", "ec2:StopInstances", "ec2:TerminateInstances", "iam:*",
				"ssm:CreateAssociation*", "ssm:ResumeSession", "ssm:SendCommand", "ssm:StartAutomationExecution",
				"ssm:StartSession", "ssm:UpdateAssociation*", "sts:AssumeRole"}, Resource: []string{"*"}},
	}
	if len(n.Data) > 0 {
		all = append(all, Statement{
			Sid: "ReadData", Effect: "Allow", Action: []string{"s3:GetObject", "s3:ListBucket"}, Resource: n.Data,
		})
	}
	return all
}

// Statement is a statement of a policy document.
type Statement struct {
	Sid, Effect      string
	Action, Resource []string
	Condition        map[string]map[string]any `json:",omitempty"`
}

// MachinePolicyJSON returns the machine policy as a document.
func MachinePolicyJSON(n MachineNames) []byte {
	out, err := json.Marshal(struct {
		Version   string
		Statement []Statement
	}{"2012-10-17", MachinePolicy(n)})
	if err != nil {
		panic("encode the machine policy: " + err.Error()) // strings always encode
	}
	return out
}
