package sessions_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	curfew "github.com/curfew-dev/curfew/internal/cloud/aws"
	policies "github.com/curfew-dev/curfew/test/iam"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/versitygw"
	"github.com/curfew-dev/curfew/test/wire"
)

// permitted is S3 as a machine can access it: IAM evaluates the machine policy and the tags of the
// machine's role for each call.
type permitted struct {
	*httptest.Server
	policy *policies.Policy
	tags   map[string]string

	mu     sync.Mutex
	denied []string
}

// permit starts S3 for a machine, with the role of its instance profile.
func (s *stand) permit(ctx context.Context, i types.Instance) (*permitted, error) {
	p := &permitted{tags: map[string]string{}}
	var err error
	if p.policy, err = policies.Parse(sandbox.MachinePolicy(region, versitygw.Bucket)); err != nil {
		return nil, err
	}
	if i.IamInstanceProfile != nil { // a machine without one has no permissions
		if p.tags, err = s.roleTags(ctx, aws.ToString(i.IamInstanceProfile.Arn)); err != nil {
			return nil, err
		}
	}
	to, err := url.Parse(s.s3)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host },
		// Without permission to list the bucket, a missing object is reported as forbidden.
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode == http.StatusNotFound && r.Request.Method == http.MethodGet &&
				!p.allows("s3:ListBucket", "", nil) {
				r.StatusCode = http.StatusForbidden
				r.Body = io.NopCloser(strings.NewReader(denial))
				r.ContentLength = int64(len(denial))
				r.Header.Set("Content-Length", fmt.Sprint(len(denial)))
			}
			return nil
		},
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ok, call := p.decide(r); !ok {
			p.mu.Lock()
			p.denied = append(p.denied, call)
			p.mu.Unlock()
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, denial)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	return p, nil
}

// roleTags returns the tags of the role of an instance profile as condition keys. It is an error if
// the role has another policy than the machine policy, or another boundary.
func (s *stand) roleTags(ctx context.Context, profile string) (map[string]string, error) {
	api := iam.NewFromConfig(s.account.Config(region))
	name := aws.String(profile[strings.LastIndex(profile, "/")+1:])
	found, err := api.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: name})
	if err != nil {
		return nil, err
	}
	if len(found.InstanceProfile.Roles) != 1 {
		return nil, fmt.Errorf("instance profile %s has %d roles", profile, len(found.InstanceProfile.Roles))
	}
	role, err := api.GetRole(ctx, &iam.GetRoleInput{RoleName: found.InstanceProfile.Roles[0].RoleName})
	if err != nil {
		return nil, err
	}
	attached, err := api.ListAttachedRolePolicies(ctx, &iam.ListAttachedRolePoliciesInput{
		RoleName: role.Role.RoleName,
	})
	if err != nil {
		return nil, err
	}
	b := role.Role.PermissionsBoundary
	if b == nil || len(attached.AttachedPolicies) != 1 ||
		aws.ToString(attached.AttachedPolicies[0].PolicyArn) != aws.ToString(b.PermissionsBoundaryArn) {
		return nil, fmt.Errorf("role %s has the policies %v and the boundary %v", *role.Role.RoleName,
			attached.AttachedPolicies, b)
	}
	tags := map[string]string{}
	for _, t := range role.Role.Tags {
		tags["aws:PrincipalTag/"+*t.Key] = *t.Value
	}
	return tags, nil
}

const denial = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`

// allows evaluates the policy for a call on the bucket ("") or on an object in it.
func (p *permitted) allows(action, key string, keys map[string]string) bool {
	r := policies.Request{Action: action, Resource: "arn:aws:s3:::" + versitygw.Bucket, Keys: map[string]string{}}
	if key != "" {
		r.Resource += "/" + key
	}
	for _, from := range []map[string]string{p.tags, keys} {
		for k, v := range from {
			r.Keys[k] = v
		}
	}
	ok, err := p.policy.Allows(r)
	return ok && err == nil
}

// decide returns whether a call of S3 is allowed, and its name.
func (p *permitted) decide(r *http.Request) (ok bool, call string) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	call = r.Method + " " + r.URL.RequestURI()
	switch {
	case bucket != versitygw.Bucket:
		return false, call
	case key == "" && r.Method == http.MethodGet && query.Get("list-type") == "2":
		return p.allows("s3:ListBucket", "", map[string]string{"s3:prefix": query.Get("prefix")}), call
	case key == "" && r.Method == http.MethodPost && query.Has("delete"):
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var list struct {
			Object []struct{ Key string }
		}
		if err != nil || xml.Unmarshal(body, &list) != nil || len(list.Object) == 0 {
			return false, call
		}
		for _, o := range list.Object {
			if !p.allows("s3:DeleteObject", o.Key, nil) {
				return false, call + " " + o.Key
			}
		}
		return true, call
	case key != "" && len(query) <= 1 && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return p.allows("s3:GetObject", key, nil), call
	case key != "" && len(query) <= 1 && r.Method == http.MethodPut:
		return p.allows("s3:PutObject", key, nil), call
	}
	return false, call // including a list of uploads
}

// refused returns the denied calls of a machine itself, except lists of uploads, which are
// optional.
func (p *permitted) refused() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.denied), func(call string) bool {
		return strings.Contains(call, "?uploads")
	})
}

// TestMachinesKeepToThemselves checks that machines of two sessions with similar names only reach
// their own objects: neither can read, write, list or delete those of the other, or orders.
func TestMachinesKeepToThemselves(t *testing.T) {
	t.Parallel()
	s := newStand(t, brief)
	m := s.host()
	ids := map[string]string{}
	for _, name := range []string{"demo", "demo2"} {
		s.curfew(0, "up", name, "--type", machineType)
		ids[name] = s.run(name).ResourceIDs[0]
	}
	place := map[string][]string{}
	for _, name := range []string{"demo", "demo2"} {
		p := m.store(ids[name])
		if got := p.refused(); len(got) > 0 {
			t.Errorf("%s was refused %q", name, got)
		}
		control := "sessions/control/" + p.tags["aws:PrincipalTag/curfew:session"] + "/"
		work := "sessions/work/" + p.tags["aws:PrincipalTag/curfew:installation"] + "/" + name + "/"
		place[name] = []string{control, work}
	}
	// Nor with a file that claims the other's work.
	for _, at := range []string{place["demo2"][1], "sessions/control", "sessions/work", ""} {
		s.write("theirs.yaml", "apiVersion: curfew.session/v1\nname: theirs\nlease: 1h\nresources: {instance_type: "+
			machineType+"}\nwork: {dir: ~/work, to: \"s3://"+versitygw.Bucket+"/"+at+"\"}\n")
		if _, errs := s.curfew(2, "up", "theirs", "-f", "theirs.yaml", "--detach"); !strings.Contains(errs,
			"may not write") {
			t.Errorf("work at %q: %s", at, errs)
		}
	}
	for name, other := range map[string]string{"demo": "demo2", "demo2": "demo"} {
		p := m.store(ids[name])
		api := s3.New(s3.Options{Region: region, BaseEndpoint: aws.String(p.URL), UsePathStyle: true,
			Credentials: credentials.NewStaticCredentialsProvider(versitygw.AccessKey, versitygw.SecretKey, "")})
		bucket := aws.String(versitygw.Bucket)
		for _, prefix := range append(place[other], "sessions/control/", "sessions/work/", "sessions/", "") {
			_, list := api.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{
				Bucket: bucket, Prefix: aws.String(prefix),
			})
			tries := map[string]error{"list": list}
			for _, key := range []string{prefix + "status-0.json", prefix + "order.json", prefix + "node-0/HEAD"} {
				_, tries["get "+key] = api.GetObject(t.Context(), &s3.GetObjectInput{
					Bucket: bucket, Key: aws.String(key),
				})
				_, tries["put "+key] = api.PutObject(t.Context(), &s3.PutObjectInput{
					Bucket: bucket, Key: aws.String(key), Body: strings.NewReader("{}"),
				})
				_, tries["delete "+key] = api.DeleteObject(t.Context(), &s3.DeleteObjectInput{
					Bucket: bucket, Key: aws.String(key),
				})
			}
			for try, err := range tries {
				if answer := smithy.APIError(nil); !errors.As(err, &answer) || answer.ErrorCode() != "AccessDenied" {
					t.Errorf("%s may %s of %q: %v", name, try, prefix, err)
				}
			}
		}
		order := aws.String(place[name][0] + "order.json")
		if _, err := api.GetObject(t.Context(), &s3.GetObjectInput{Bucket: bucket, Key: order}); err != nil {
			t.Errorf("%s may not read its order: %v", name, err)
		}
		if _, err := api.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: bucket, Key: order, Body: strings.NewReader("{}"),
		}); err == nil {
			t.Errorf("%s may write its order", name)
		}
	}
	for name, id := range ids {
		m.forget(id) // ignore the calls of this test
		s.curfew(0, "down", name)
	}
	s.nothingLeft()
}

// TestNoRoleNoMachine checks that no machine is launched if IAM refuses to create a role, and that
// one line explains what to do.
func TestNoRoleNoMachine(t *testing.T) {
	t.Parallel()
	s := newStand(t, brief)
	undo := s.account.Wire.Inject(wire.Fault{Service: "iam", Operation: "AttachRolePolicy", Kind: wire.AccessDenied})
	_, errs := s.curfew(1, "up", "demo", "--type", machineType)
	undo()
	why := s.run("demo").Why
	for _, text := range []string{
		"make role curfew-", "its machines can have no role of their own", "apply terraform/backbone of this release",
	} {
		if !strings.Contains(why, text) || strings.Contains(why, "\n") {
			t.Errorf("why: %q, without %q", why, text)
		}
	}
	if !strings.Contains(errs, "no role of their own") || s.run("demo").State != "failed" ||
		s.account.Wire.Launches.Count() > 0 {
		t.Errorf("%d launches, %s: %s", s.account.Wire.Launches.Count(), s.run("demo").State, errs)
	}
	s.nothingLeft()
}

// store returns S3 as a machine can access it.
func (m *machines) store(id string) *permitted {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs[id].s3
}

// forget discards the denied calls of a machine.
func (m *machines) forget(id string) {
	p := m.store(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = nil
}

// roles returns the existing roles of sessions.
func (s *stand) roles() (names []string) {
	s.t.Helper()
	out, err := iam.NewFromConfig(s.account.Config(region)).ListRoles(context.WithoutCancel(s.t.Context()),
		&iam.ListRolesInput{PathPrefix: aws.String(curfew.RolePath)})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range out.Roles {
		names = append(names, aws.ToString(r.RoleName))
	}
	return names
}
