package iam

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Principal is a role with the documents that must all allow its calls: its policy first, and then
// its boundary.
type Principal struct {
	Name     string
	Policies []*Policy
	// Keys are the condition keys of the principal ("aws:userid", "aws:PrincipalTag/team").
	Keys map[string]string
}

func (p Principal) allows(r Request) (bool, error) {
	r.Keys = maps.Clone(r.Keys)
	if r.Keys == nil {
		r.Keys = map[string]string{}
	}
	maps.Copy(r.Keys, p.Keys)
	for _, policy := range p.Policies {
		if ok, err := policy.Allows(r); !ok || err != nil {
			return false, err
		}
	}
	return len(p.Policies) > 0, nil
}

// Account is the account of the principals.
type Account struct {
	Partition, Region, ID string
	// Bucket is a bucket whose objects and lifecycle the documents may name.
	Bucket string
	// Policies maps ARNs to managed policies; an unknown one allows everything.
	Policies map[string]*Policy
}

// kind is a kind of resources: its ARNs, the calls that end it or its work, and the calls that
// write and remove its tags (Service Authorization Reference).
type kind struct {
	arns               []string
	ends, tags, untags []string
	// untold is true if IAM does not know the tags of the resource.
	untold bool
}

// kinds covers all resources in curfew's documents. If there are several ARNs, the last ones are
// those that the documents must not allow.
var kinds = []kind{
	ec2Kind("instance", "ec2:StopInstances", "ec2:TerminateInstances", "ssm:StartSession"),
	ec2Kind("volume", "ec2:DeleteVolume"),
	ec2Kind("elastic-ip", "ec2:ReleaseAddress"),
	ec2Kind("network-interface", "ec2:DeleteNetworkInterface"),
	ec2Kind("spot-instances-request", "ec2:CancelSpotInstanceRequests"),
	ec2Kind("snapshot", "ec2:DeleteSnapshot"),
	ec2Kind("image", "ec2:DeregisterImage"),
	ec2Kind("natgateway", "ec2:DeleteNatGateway"),
	ec2Kind("capacity-reservation", "ec2:CancelCapacityReservation"),
	named("logs", ":log-group:payroll", "TagResource", "UntagResource",
		"logs:PutRetentionPolicy", "logs:DeleteLogGroup"),
	named("ecr", ":repository/payroll", "TagResource", "UntagResource", "ecr:PutLifecyclePolicy",
		"ecr:DeleteRepository"),
	named("sagemaker", ":notebook-instance/n", "AddTags", "DeleteTags", "sagemaker:StopNotebookInstance",
		"sagemaker:DeleteNotebookInstance"),
	named("sagemaker", ":endpoint/e", "AddTags", "DeleteTags", "sagemaker:DeleteEndpoint",
		"sagemaker:UpdateEndpointWeightsAndCapacities"),
	named("sagemaker", ":training-job/j", "AddTags", "DeleteTags", "sagemaker:StopTrainingJob"),
	named("autoscaling", ":autoScalingGroup:1:autoScalingGroupName/g", "CreateOrUpdateTags", "DeleteTags",
		"autoscaling:UpdateAutoScalingGroup", "autoscaling:SetDesiredCapacity",
		"autoscaling:TerminateInstanceInAutoScalingGroup"),
	named("elasticloadbalancing", ":loadbalancer/app/l/1", "AddTags", "RemoveTags",
		"elasticloadbalancing:DeleteLoadBalancer"),
	named("elasticfilesystem", ":file-system/fs-1", "TagResource", "UntagResource",
		"elasticfilesystem:DeleteFileSystem"),
	named("fsx", ":file-system/fs-2", "TagResource", "UntagResource", "fsx:DeleteFileSystem"),
	named("rds", ":db:d", "AddTagsToResource", "RemoveTagsFromResource", "rds:DeleteDBInstance", "rds:StopDBInstance"),
	named("es", ":domain/d", "AddTags", "RemoveTags", "es:DeleteDomain"),
	named("secretsmanager", ":secret:s-a1b2c3", "TagResource", "UntagResource", "secretsmanager:DeleteSecret"),
	{
		arns: []string{
			"arn:{partition}:iam::{account}:role/curfew/sessions/a/s-1/x",
			"arn:{partition}:iam::{account}:role/curfew/sessions/other/s-1/x",
			"arn:{partition}:iam::{account}:role/admin"},
		ends: []string{"iam:DeleteRole", "iam:DetachRolePolicy"}, tags: []string{"iam:TagRole"},
		untags: []string{"iam:UntagRole"},
	},
	{
		arns: []string{"arn:{partition}:iam::{account}:instance-profile/curfew/sessions/a/s-1/x",
			"arn:{partition}:iam::{account}:instance-profile/curfew/sessions/other/s-1/x",
			"arn:{partition}:iam::{account}:instance-profile/admin"},
		ends: []string{"iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile"},
		tags: []string{"iam:TagInstanceProfile"}, untags: []string{"iam:UntagInstanceProfile"},
	},
	{
		// Without attribute-based access control IAM does not know the tags of a bucket.
		arns: []string{"arn:{partition}:s3:::{bucket}", "arn:{partition}:s3:::payroll"}, untold: true,
		ends: []string{"s3:PutLifecycleConfiguration", "s3:DeleteBucket"}, tags: []string{"s3:PutBucketTagging"},
		untags: []string{"s3:PutBucketTagging"},
	},
	{
		// With it IAM knows them, and S3 only accepts tags by other calls.
		arns: []string{"arn:{partition}:s3:::{bucket}", "arn:{partition}:s3:::payroll"},
		ends: []string{"s3:PutLifecycleConfiguration", "s3:DeleteBucket"}, tags: []string{"s3:TagResource"},
		untags: []string{"s3:UntagResource"},
	},
	{
		arns: []string{
			"arn:{partition}:s3:::{bucket}/sessions/work/a/demo/x", "arn:{partition}:s3:::{bucket}/x",
			"arn:{partition}:s3:::payroll/x",
		},
		ends: []string{"s3:DeleteObject", "s3:PutObject"},
	},
	{
		arns: []string{"arn:{partition}:ssm:{region}:{account}:session/AIDABEN-0a1b"},
		ends: []string{"ssm:TerminateSession", "ssm:ResumeSession"},
	},
}

func ec2Kind(noun string, ends ...string) kind {
	return kind{
		[]string{"arn:{partition}:ec2:{region}:{account}:" + noun + "/x-1"}, ends, []string{"ec2:CreateTags"},
		[]string{"ec2:DeleteTags"}, false,
	}
}

func named(service, rest, tag, untag string, ends ...string) kind {
	arn := "arn:{partition}:" + service + ":{region}:{account}" + rest
	return kind{[]string{arn}, ends, []string{service + ":" + tag}, []string{service + ":" + untag}, false}
}

// harmless lists the other write calls, and why they enable no termination: they create something
// new, or no document depends on what they write.
var harmless = map[string]string{
	"ec2:CreateSnapshot": "makes", "ec2:CreateSnapshots": "makes", "ec2:RunInstances": "makes",
	"iam:CreateInstanceProfile": "makes",
	"iam:CreateRole":            "makes; what the role may be given are iam:AttachRolePolicy and iam:PassRole",
	"ec2:StartInstances":        "starts", "sagemaker:StartNotebookInstance": "starts",
	"ecr:DeleteLifecyclePolicy": "keeps more", "logs:DeleteRetentionPolicy": "keeps more",
	"iam:AddRoleToInstanceProfile": "names a role that iam:PassRole was asked about",
	"logs:CreateLogStream":         "makes", "logs:PutLogEvents": "appends",
	"s3:AbortMultipartUpload": "ends an upload that was not an object",
	"kms:Decrypt":             "reads", "kms:GenerateDataKey": "reads",
	"ssm:UpdateInstanceInformation": "tells of itself", "ssmmessages:CreateControlChannel": "is connected to",
	"ssmmessages:CreateDataChannel":  "is connected to",
	"ssmmessages:OpenControlChannel": "is connected to", "ssmmessages:OpenDataChannel": "is connected to",
}

// become lists the calls by which a principal uses another role; others attach a policy to a role.
var (
	become   = []string{"iam:PassRole", "sts:AssumeRole", "sts:AssumeRoleWithWebIdentity"}
	policies = []string{
		"iam:AttachRolePolicy", "iam:PutRolePolicy", "iam:PutRolePermissionsBoundary",
		"iam:DeleteRolePermissionsBoundary",
		"iam:UpdateAssumeRolePolicy",
	}
)

var reading = []string{"Describe", "Get", "List", "Lookup", "Filter", "BatchGet", "BatchCheck"}

// understood returns an error if a document allows an action with effects unknown to this package.
func understood(p *Policy) error {
	known := slices.Concat(slices.Collect(maps.Keys(harmless)), become, policies)
	for _, k := range kinds {
		known = slices.Concat(known, k.ends, k.tags, k.untags)
	}
	for _, s := range p.Statement {
		if s.Effect != "Allow" {
			continue
		}
		for _, action := range s.Action {
			_, name, _ := strings.Cut(action, ":")
			reads := slices.ContainsFunc(reading, func(verb string) bool { return strings.HasPrefix(name, verb) })
			if !reads && !slices.Contains(known, action) {
				return fmt.Errorf("%s: what %s makes possible is not known here", s.Sid, action)
			}
		}
	}
	return nil
}

// Widened returns every way in which the principals together can end something that none of them
// could end before: by up to mostWrites writes of tags, and by the roles that they can assume or
// create. Each is a line: who does what first, and what can be ended then. An action with unknown
// effects is an error.
func Widened(by []Principal, in Account) ([]string, error) {
	for _, p := range by {
		if err := understood(p.Policies[0]); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	s := &search{
		by: by, in: in,
		names: strings.NewReplacer("{partition}", in.Partition, "{region}", in.Region, "{account}", in.ID, "{bucket}",
			in.Bucket),
	}
	s.interesting()
	var all []string
	grown, how, err := s.become()
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		for _, arn := range k.arns {
			for _, tags := range s.states {
				found, err := s.from(k, s.names.Replace(arn), tags, grown, how)
				if err != nil {
					return nil, err
				}
				all = append(all, found...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// mostWrites is the number of sequential writes of one tag to try: no statement of the documents
// requires more tags.
const mostWrites = 2

// mentions reports whether a statement allows an action under any condition.
func (p *Policy) mentions(action string) bool {
	return slices.ContainsFunc(p.Statement, func(s Statement) bool {
		return s.Effect == "Allow" && slices.ContainsFunc(s.Action, func(a string) bool {
			return like(strings.ToLower(a), strings.ToLower(action))
		})
	})
}

type search struct {
	by    []Principal
	in    Account
	names *strings.Replacer
	// values holds the relevant values of tags, by the keys used in documents; states holds the
	// initial tags of a resource.
	values map[string][]string
	states []map[string]string
	// sets are tags that a statement requires to be written together.
	sets []map[string]string
}

// interesting collects the tags that documents depend on.
func (s *search) interesting() {
	s.values = map[string][]string{}
	for _, p := range s.by {
		for _, policy := range p.Policies {
			for _, st := range policy.Statement {
				set := map[string]string{}
				for operator, keys := range st.Condition {
					for key, operands := range keys {
						s.decides(p, key, operands)
						if tag, ok := strings.CutPrefix(key, "aws:RequestTag/"); ok &&
							(set[tag] == "" || operator != "Null") {
							set[tag] = operands[0]
						}
					}
				}
				if len(set) > 0 {
					s.sets = append(s.sets, set)
				}
			}
		}
	}
	s.states = []map[string]string{
		{}, {"curfew:lifetime": "persistent", "curfew:managed": "true"}, {"curfew:lifetime": "ephemeral"},
		{"curfew:session": "s-9", "curfew:installation": "other", "curfew:owner": "AIDABEN"}}
	for key, values := range s.values {
		for _, v := range values {
			s.states = append(s.states, map[string]string{
				key: v,
			}, map[string]string{key: v, "curfew:lifetime": "persistent"})
		}
	}
}

func (s *search) decides(p Principal, key string, operands []string) {
	for _, prefix := range []string{"aws:ResourceTag/", "ssm:resourceTag/"} {
		tag, ok := strings.CutPrefix(key, prefix)
		if !ok || strings.HasPrefix(tag, "aws:") { // AWS lets no one write those
			continue
		}
		for _, v := range append([]string{"x", "a"}, operands...) {
			if v, ok := (Request{Keys: p.Keys}).Resolve(v); ok && !slices.Contains(s.values[tag], v) {
				s.values[tag] = append(s.values[tag], v)
			}
		}
	}
}

// become returns the principals with those that they can assume or create, and how.
func (s *search) become() ([]Principal, map[string]string, error) {
	all, how := slices.Clone(s.by), map[string]string{}
	join := func(name, policy, by string) {
		if _, known := how[name]; known {
			return
		}
		p := s.in.Policies[policy]
		if p == nil {
			p = &Policy{
				Statement: []Statement{
					{Sid: "Everything", Effect: "Allow", Action: Strings{"*"}, Resource: Strings{"*"}},
				},
			}
		}
		how[name] = by
		all = append(all, Principal{Name: name, Policies: []*Policy{p}})
	}
	candidates := slices.Sorted(maps.Keys(s.in.Policies))
	candidates = append(candidates, "arn:"+s.in.Partition+":iam::aws:policy/AdministratorAccess")
	for _, k := range kinds {
		for _, arn := range k.arns {
			arn = s.names.Replace(arn)
			if !strings.Contains(arn, ":role/") {
				continue
			}
			for _, action := range policies {
				for _, policy := range candidates {
					r := Request{
						Action: action, Resource: arn,
						Keys: map[string]string{"iam:PolicyARN": policy, "iam:PermissionsBoundary": policy},
					}
					if who, err := allowing(s.by, r); err != nil {
						return nil, nil, err
					} else if who != "" {
						join(arn+" with "+policy, policy, who+" may "+action+" "+policy+" on "+arn)
					}
				}
			}
			// A role of a session has at most the machine policy; any other role may have
			// everything.
			if strings.Contains(arn, ":role/curfew/sessions/") {
				continue
			}
			for _, action := range become {
				r := Request{
					Action: action, Resource: arn, Keys: map[string]string{"iam:PassedToService": "ec2.amazonaws.com"},
				}
				if who, err := allowing(s.by, r); err != nil {
					return nil, nil, err
				} else if who != "" {
					join(arn, "", who+" may "+action+" "+arn)
				}
			}
		}
	}
	return all, how, nil
}

// allowing returns the name of a principal that may make a call; "" if there is none.
func allowing(by []Principal, r Request) (string, error) {
	for _, p := range by {
		if ok, err := p.allows(r); ok || err != nil {
			return p.Name, err
		}
	}
	return "", nil
}

// from tries every order of writes on a resource with initial tags.
func (s *search) from(k kind, arn string, tags map[string]string, grown []Principal, how map[string]string) ([]string,
	error) {
	ask := func(action string, now map[string]string) Request {
		r := Request{
			Action: action, Resource: arn, Tags: now, Keys: map[string]string{
				"ssm:SessionDocumentAccessCheck": "true",
			},
		}
		if action == "iam:DetachRolePolicy" && len(s.in.Policies) > 0 {
			r.Keys["iam:PolicyARN"] = slices.Sorted(maps.Keys(s.in.Policies))[0]
		}
		if k.untold {
			r.Tags = nil
		}
		return r
	}
	var ends []string // calls that could not end it before, and that a document may allow
	for _, end := range k.ends {
		who, err := allowing(s.by, ask(end, tags))
		if err != nil {
			return nil, err
		}
		if who == "" && slices.ContainsFunc(grown, func(p Principal) bool { return p.Policies[0].mentions(end) }) {
			ends = append(ends, end)
		}
	}
	if len(ends) == 0 {
		return nil, nil
	}
	var found []string
	type state struct {
		tags   map[string]string
		path   string
		writes int
	}
	seen := map[string]bool{fmt.Sprint(tags): true}
	for open := []state{{tags, "", 0}}; len(open) > 0 && len(found) == 0; open = open[1:] {
		at := open[0]
		for _, end := range ends {
			who, err := allowing(grown, ask(end, at.tags))
			if err != nil {
				return nil, err
			}
			if who != "" {
				path := strings.TrimPrefix(at.path+", then "+cmp.Or(how[who], who), ", then ")
				found = append(found, fmt.Sprintf("%s on %s tagged %v: may %s", path, arn, tags, end))
			}
		}
		if k.untold || at.writes == mostWrites {
			continue
		}
		for _, w := range s.writes(k, at.tags) {
			key := fmt.Sprint(w.after)
			if seen[key] {
				continue
			}
			r := ask(w.action, at.tags)
			r.TagKeys, r.RequestTags = w.keys, w.set
			who, err := allowing(grown, r)
			if err != nil {
				return nil, err
			}
			if who != "" {
				seen[key] = true
				open = append(open, state{
					w.after, fmt.Sprintf("%s, then %s by %s to %v", at.path, w.action, who, w.after), at.writes + 1,
				})
			}
		}
	}
	return found, nil
}

// write is one call that changes tags: its tag keys, and the tags afterwards.
type write struct {
	action     string
	keys       []string
	set, after map[string]string
}

// writes returns the possible tag writes for something with these tags: the tags that a statement
// requires together; each tag alone, in its own and in another spelling, and with another tag; the
// removal of each; and of all without naming any, which EC2 supports.
func (s *search) writes(k kind, now map[string]string) []write {
	var all []write
	for _, action := range k.tags {
		for _, set := range s.sets {
			after := maps.Clone(now)
			maps.Copy(after, set)
			all = append(all, write{action, slices.Sorted(maps.Keys(set)), set, after})
		}
		for key, values := range s.values {
			for _, v := range values {
				for _, spelled := range []string{key, strings.ToUpper(key)} {
					set := map[string]string{spelled: v}
					after := maps.Clone(now)
					after[spelled] = v
					// No document depends on the other tag, so it is left out afterwards.
					all = append(all, write{action, []string{spelled}, set, after},
						write{
							action, []string{"purpose", spelled}, map[string]string{"purpose": "x", spelled: v}, after,
						})
				}
			}
		}
	}
	for _, action := range k.untags {
		all = append(all, write{action: action, after: map[string]string{}})
		for key := range now {
			after := maps.Clone(now)
			delete(after, key)
			all = append(all, write{action: action, keys: []string{key}, after: after})
		}
	}
	return all
}
