package aws_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	policies "github.com/curfew-dev/curfew/test/iam"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

const policyARN = "arn:aws:iam::123456789012:policy/curfew-session-machine"

// roleOf is the role of a session's machines as shown by IAM.
type roleOf struct {
	path, boundary, trust string
	tags                  map[string]string
	policies              []string
}

// rolesLeft returns the roles of the tests' sessions in IAM by name, and the names of instance
// profiles.
func rolesLeft(tb testing.TB, account *sandbox.Sandbox) (roles map[string]roleOf, profiles []string) {
	tb.Helper()
	api := iam.NewFromConfig(account.Config(launchRegion))
	listed, err := api.ListRoles(tb.Context(), &iam.ListRolesInput{
		PathPrefix: awssdk.String(aws.RolePath + "launches/"),
	})
	if err != nil {
		tb.Fatal(err)
	}
	roles = map[string]roleOf{}
	for _, l := range listed.Roles {
		got, err := api.GetRole(tb.Context(), &iam.GetRoleInput{RoleName: l.RoleName})
		if err != nil {
			tb.Fatal(err)
		}
		r := roleOf{
			path: *got.Role.Path, tags: map[string]string{}, trust: awssdk.ToString(got.Role.AssumeRolePolicyDocument),
		}
		if b := got.Role.PermissionsBoundary; b != nil {
			r.boundary = *b.PermissionsBoundaryArn
		}
		for _, t := range got.Role.Tags {
			r.tags[*t.Key] = *t.Value
		}
		attached, err := api.ListAttachedRolePolicies(tb.Context(), &iam.ListAttachedRolePoliciesInput{
			RoleName: l.RoleName,
		})
		if err != nil {
			tb.Fatal(err)
		}
		for _, p := range attached.AttachedPolicies {
			r.policies = append(r.policies, *p.PolicyArn)
		}
		roles[*l.RoleName] = r
	}
	made, err := api.ListInstanceProfiles(tb.Context(), &iam.ListInstanceProfilesInput{
		PathPrefix: awssdk.String(aws.RolePath + "launches/"),
	})
	if err != nil {
		tb.Fatal(err)
	}
	for _, p := range made.InstanceProfiles {
		if !strings.HasPrefix(*p.Path, aws.RolePath+"launches/") { // moto lists all
			continue
		}
		profiles = append(profiles, *p.InstanceProfileName)
	}
	return roles, profiles
}

// onDemand returns the pool for launches in tests of roles.
func onDemand() session.Pool {
	return session.Pool{Type: "g6.xlarge", Region: launchRegion, Zone: zones[0], Image: launchImage}
}

// TestSessionHasOwnRole checks that the machines of a session have a role with its tags and the
// machine policy as permissions and boundary, and that the role is removed with the session.
func TestSessionHasOwnRole(t *testing.T) {
	backbone(t)
	l := newLauncher(t, nil)
	want := launchOf("role-1", onDemand(), 2)
	want.Tags["curfew:owner"] = "AROA1:ana@example.com,*"
	if _, err := l.Launch(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	roles, profiles := rolesLeft(t, scratch)
	name := "curfew-role-1-" + launchRegion
	got, tags := roles[name], map[string]string{
		inventory.TagInstallation: "launches", inventory.TagSession: "role-1", session.TagName: "demo",
		"curfew:owner": "AROA1:ana@example.com__",
	}
	if got.path != "/curfew/sessions/launches/role-1/" || got.boundary != policyARN ||
		!slices.Equal(got.policies, []string{policyARN}) || !maps.Equal(got.tags, tags) {
		t.Errorf("role %+v", got)
	}
	if !strings.Contains(got.trust, "ec2.amazonaws.com") || strings.Contains(got.trust, "AWS%22") {
		t.Errorf("it trusts %s", got.trust)
	}
	if !slices.Contains(profiles, name) {
		t.Errorf("instance profiles %q", profiles)
	}
	listed, err := l.Roles(t.Context(), "launches")
	if err != nil || !slices.ContainsFunc(listed, func(r session.Role) bool {
		return r.Session == "role-1" && r.Name == name && !r.CreatedAt.IsZero()
	}) {
		t.Errorf("roles of the installation: %+v, %v", listed, err)
	}
	if listed, err := l.Roles(t.Context(), "launch"); err != nil || len(listed) > 0 {
		t.Errorf("roles of an installation whose name begins alike: %+v, %v", listed, err)
	}
	end(t, l, "role-1")
	if roles, profiles := rolesLeft(t, scratch); roles[name].path != "" || slices.Contains(profiles, name) {
		t.Errorf("left: %v, %q", roles, profiles)
	}
}

// TestLaunchResumesAfterRoleFault checks that a launch that fails at any call, before or after it
// took effect, leaves a listed role that the repeated launch uses, and that is removed with the
// session.
func TestLaunchResumesAfterRoleFault(t *testing.T) {
	backbone(t)
	for _, kind := range []wire.FaultKind{wire.ServerError, wire.Lost} {
		for _, call := range []string{
			"CreateRole", "AttachRolePolicy", "CreateInstanceProfile", "AddRoleToInstanceProfile", "RunInstances",
		} {
			for _, resumed := range []bool{true, false} {
				if kind == wire.ServerError && !resumed {
					continue // equivalent to losing the previous call's response
				}
				id := strings.ToLower(fmt.Sprintf("dies-%d-%s-%t", kind, call, resumed))
				id = id[:min(len(id), 36)]
				l, service := newLauncher(t, nil), "iam"
				if call == "RunInstances" {
					service = "ec2"
				}
				undo := scratch.Wire.Inject(wire.Fault{Service: service, Operation: call, Kind: kind})
				_, err := l.Launch(t.Context(), launchOf(id, onDemand(), 1))
				undo()
				if err == nil || errors.Is(err, session.ErrNoRole) {
					t.Errorf("%s: %v, which does not say whether it may be made again", id, err)
				}
				listed, err := l.Roles(t.Context(), "launches")
				made := slices.ContainsFunc(listed, func(r session.Role) bool { return r.Session == id })
				if err != nil || made != (call != "CreateRole" || kind == wire.Lost) {
					t.Errorf("%s: roles %+v, %v", id, listed, err)
				}
				if resumed {
					if machines, err := newLauncher(t, nil).Launch(t.Context(),
						launchOf(id, onDemand(), 1)); err != nil ||
						len(machines) != 1 {
						t.Errorf("%s, again: %v, %v", id, machines, err)
					}
				}
				end(t, l, id)
			}
		}
	}
	if roles, profiles := rolesLeft(t, scratch); len(roles)+len(profiles) > 0 {
		t.Errorf("left: %v, %q", roles, profiles)
	}
}

// TestEndResumesAfterRoleFault checks that an end that fails at any call is repeated until nothing
// is left.
func TestEndResumesAfterRoleFault(t *testing.T) {
	backbone(t)
	for _, call := range []string{
		"ListInstanceProfiles", "RemoveRoleFromInstanceProfile", "DeleteInstanceProfile", "ListRoles",
		"ListAttachedRolePolicies", "DetachRolePolicy", "DeleteRole",
	} {
		id := strings.ToLower("end-" + call)
		id = id[:min(len(id), 36)]
		l := newLauncher(t, nil)
		machines, err := l.Launch(t.Context(), launchOf(id, onDemand(), 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.End(t.Context(), id, []string{machines[0].ID}); err != nil {
			t.Fatal(err)
		}
		undo := scratch.Wire.Inject(wire.Fault{Service: "iam", Operation: call, Kind: wire.AccessDenied})
		left, err := l.Leftovers(t.Context(), "launches", id)
		undo()
		if err == nil && (len(left) == 0 || !strings.Contains(strings.Join(left, " "), "curfew-"+id)) {
			t.Errorf("%s fails: nothing is said of what stays: %q", call, left)
		}
		if left, err := l.Leftovers(t.Context(), "launches", id); err != nil || len(left) > 0 {
			t.Errorf("after %s: %q, %v", call, left, err)
		}
	}
	if roles, profiles := rolesLeft(t, scratch); len(roles)+len(profiles) > 0 {
		t.Errorf("left: %v, %q", roles, profiles)
	}
}

// TestLaunchWaitsForItsProfile covers an instance profile that EC2 sees only seconds later.
func TestLaunchWaitsForItsProfile(t *testing.T) {
	backbone(t)
	l := newLauncher(t, nil)
	scratch.Wire.Launches.Refuse(wire.LaunchRefusal{Code: "InvalidParameterValue", Type: "g6.xlarge", Times: 2})
	scratch.Wire.Recorder.Reset()
	if _, err := l.Launch(t.Context(), launchOf("unseen", onDemand(), 1)); err != nil {
		t.Fatal(err)
	}
	if n := scratch.Wire.Recorder.Count("ec2:RunInstances"); n != 3 {
		t.Errorf("%d calls of RunInstances", n)
	}
	end(t, l, "unseen")
}

// TestRefusesLaunchWithoutRole checks that nothing is launched if the role cannot be made or
// belongs to something else.
func TestRefusesLaunchWithoutRole(t *testing.T) {
	backbone(t)
	api := iam.NewFromConfig(scratch.Config(launchRegion))
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"AWS":"*"}}]}`
	taken := func(id, path string) func(*testing.T, *session.Launch) {
		return func(t *testing.T, _ *session.Launch) {
			name := awssdk.String("curfew-" + id + "-" + launchRegion)
			if _, err := api.CreateRole(t.Context(), &iam.CreateRoleInput{
				RoleName: name, Path: awssdk.String(path), AssumeRolePolicyDocument: awssdk.String(trust),
			}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if _, err := api.DeleteRole(context.WithoutCancel(t.Context()),
					&iam.DeleteRoleInput{RoleName: name}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	denied := func(call string) func(*testing.T, *session.Launch) {
		return func(t *testing.T, _ *session.Launch) {
			t.Cleanup(scratch.Wire.Inject(wire.Fault{Service: "iam", Operation: call, Kind: wire.AccessDenied}))
		}
	}
	for _, tc := range []struct {
		id, says string
		change   func(*testing.T, *session.Launch)
	}{
		{"denied-1", "apply terraform/backbone of this release", denied("CreateRole")},
		{"denied-2", "apply terraform/backbone of this release", denied("AttachRolePolicy")},
		{"denied-3", "apply terraform/backbone of this release", denied("CreateInstanceProfile")},
		{"denied-4", "apply terraform/backbone of this release", denied("AddRoleToInstanceProfile")},
		{"taken-1", "without the boundary", taken("taken-1", "/curfew/sessions/launches/taken-1/")},
		{"taken-2", "outside of /curfew/sessions/launches/taken-2/", taken("taken-2", "/")},
		{"name-1", "letters, digits", func(_ *testing.T, l *session.Launch) { l.Session.Name = "de*mo" }},
		{"name-2", "letters, digits", func(_ *testing.T, l *session.Launch) { l.Session.Name = "${aws:userid}" }},
		{"name-3", "letters, digits", func(_ *testing.T, l *session.Launch) {
			l.Tags[inventory.TagInstallation] = "a/b"
		}},
		{"long-" + strings.Repeat("x", 60), "longer than 64", func(*testing.T, *session.Launch) {}},
		{"place-1", "may not write", func(_ *testing.T, l *session.Launch) {
			l.Host.Work = "s3://sessions/sessions/work/launches/demo2"
		}},
		{"place-2", "may not write", func(_ *testing.T, l *session.Launch) {
			l.Host.Work = "s3://sessions/sessions/work/other/demo"
		}},
		{"place-3", "may not write", func(_ *testing.T, l *session.Launch) {
			l.Host.Control = "s3://sessions/sessions/control/other"
		}},
		{"place-4", "may not write", func(_ *testing.T, l *session.Launch) {
			l.Host.Work = "s3://sessions/sessions/control/place-4"
		}},
	} {
		t.Run(tc.id, func(t *testing.T) {
			l, want := newLauncher(t, nil), launchOf(tc.id, onDemand(), 1)
			tc.change(t, &want)
			scratch.Wire.Recorder.Reset()
			_, err := l.Launch(t.Context(), want)
			if !errors.Is(err, session.ErrNoRole) || !strings.Contains(err.Error(), tc.says) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("launched: %v", err)
			}
			if n := scratch.Wire.Recorder.Count("ec2:RunInstances"); n > 0 {
				t.Errorf("%d calls of RunInstances", n)
			}
		})
		if !strings.HasPrefix(tc.id, "taken") && len(tc.id) < 20 {
			end(t, newLauncher(t, nil), tc.id)
		}
	}
}

// TestMachineRoleReachesOnlyItsSession uses moto's IAM, which authorizes each call, with the
// credentials of two sessions with a common name prefix. moto lacks policy variables: each role has
// the machine policy with its tags inserted.
func TestMachineRoleReachesOnlyItsSession(t *testing.T) {
	environOf(t, scratch)
	account, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	shared := scratch
	scratch = account
	t.Cleanup(func() {
		scratch = shared
		if err := account.Close(); err != nil {
			t.Error(err)
		}
	})
	backbone(t)
	plain := account.Config(launchRegion)
	plain.BaseEndpoint = awssdk.String(account.MotoURL())
	store := func(c awssdk.Config) *s3.Client {
		return s3.NewFromConfig(c, func(o *s3.Options) {
			o.UsePathStyle, o.RequestChecksumCalculation = true, awssdk.RequestChecksumCalculationWhenRequired
		})
	}
	if _, err := store(plain).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: awssdk.String("sessions"),
		CreateBucketConfiguration: &s3types.CreateBucketConfiguration{LocationConstraint: launchRegion}}); err != nil {
		t.Fatal(err)
	}
	l := newLauncher(t, nil)
	of := map[string]*s3.Client{}
	for id, name := range map[string]string{"s-1": "demo", "s-12": "demo2"} {
		want := launchOf(id, onDemand(), 1)
		want.Session.Name = name
		if _, err := l.Launch(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		of[id] = store(machineConfig(t, account, id))
	}
	enforceIAM(t, account)
	own := map[string]string{"s-1": "demo", "s-12": "demo2"}
	for id, api := range of {
		for other, name := range own {
			for _, key := range []string{
				"control/" + other + "/status-0.json", "control/" + other + "/events-0/1.jsonl",
				"work/launches/" + name + "/node-0/HEAD",
			} {
				key := awssdk.String("sessions/" + key)
				_, put := api.PutObject(t.Context(), &s3.PutObjectInput{
					Bucket: awssdk.String("sessions"), Key: key, Body: strings.NewReader("x"),
				})
				_, get := api.GetObject(t.Context(), &s3.GetObjectInput{Bucket: awssdk.String("sessions"), Key: key})
				for call, err := range map[string]error{"PutObject": put, "GetObject": get} {
					if id == other && err != nil || id != other && !isDenied(err) {
						t.Errorf("the machine of %s asks for %s of %s: %v", id, call, *key, err)
					}
				}
			}
		}
		for _, key := range []string{
			"sessions/control/" + id + "/order.json", "sessions/control/other/order.json",
			"sessions/work/launches/x/y",
			"sessions/work/other/demo/HEAD", "sessions/x", "x",
		} {
			if _, err := api.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: awssdk.String("sessions"), Key: awssdk.String(key), Body: strings.NewReader("x"),
			}); !isDenied(err) {
				t.Errorf("the machine of %s writes %s: %v", id, key, err)
			}
		}
	}
}

// machineConfig has the credentials of the role of a session's machine.
func machineConfig(t *testing.T, account *sandbox.Sandbox, id string) awssdk.Config {
	t.Helper()
	cfg := account.Config(launchRegion)
	cfg.BaseEndpoint = awssdk.String(account.MotoURL())
	api, name := iam.NewFromConfig(cfg), awssdk.String("curfew-"+id+"-"+launchRegion)
	role, err := api.GetRole(t.Context(), &iam.GetRoleInput{RoleName: name})
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, tag := range role.Role.Tags {
		keys["aws:PrincipalTag/"+*tag.Key] = *tag.Value
	}
	document, all := policies.Request{Keys: keys}.Resolve(string(sandbox.MachinePolicy(launchRegion, "sessions")))
	if !all {
		t.Fatalf("the role of %s lacks a tag of the policy: %v", id, keys)
	}
	if _, err := api.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{
		RoleName: name, PolicyName: awssdk.String("resolved"), PolicyDocument: awssdk.String(document),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.DetachRolePolicy(t.Context(), &iam.DetachRolePolicyInput{
		RoleName: name, PolicyArn: awssdk.String(policyARN),
	}); err != nil {
		t.Fatal(err)
	}
	out, err := sts.NewFromConfig(cfg).AssumeRole(t.Context(), &sts.AssumeRoleInput{
		RoleArn: role.Role.Arn, RoleSessionName: awssdk.String("i-1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Credentials = credentials.NewStaticCredentialsProvider(*out.Credentials.AccessKeyId,
		*out.Credentials.SecretAccessKey, *out.Credentials.SessionToken)
	return cfg
}

// enforceIAM lets moto authorize every call from now on.
func enforceIAM(t *testing.T, account *sandbox.Sandbox) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, account.MotoURL()+"/moto-api/reset-auth",
		strings.NewReader("0"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", res.Status, err)
	}
}

// isDenied reports whether S3 refused a call by IAM.
func isDenied(err error) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && answer.ErrorCode() == "AccessDenied"
}
