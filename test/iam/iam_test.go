package iam

import "testing"

// TestAllows checks the evaluation against the rules of the IAM User Guide ("IAM JSON policy
// elements: Condition operators", "Variables and tags").
func TestAllows(t *testing.T) {
	statement := func(condition string) string {
		return `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ssm:*","Resource":["*"],"Condition":` +
			condition + `}]}`
	}
	ana := map[string]string{"aws:userid": "AIDAANA"}
	for _, tc := range []struct {
		name, policy string
		request      Request
		want         bool
	}{
		{
			"a variable", statement(`{"StringEquals":{"ssm:resourceTag/curfew:owner":"${aws:userid}"}}`),
			Request{Tags: map[string]string{"curfew:owner": "AIDAANA"}, Keys: ana}, true,
		},
		{
			"another value", statement(`{"StringEquals":{"ssm:resourceTag/curfew:owner":"${aws:userid}"}}`),
			Request{Tags: map[string]string{"curfew:owner": "AIDABEN"}, Keys: ana}, false,
		},
		{
			"another case", statement(`{"StringEquals":{"ssm:resourceTag/curfew:owner":"${aws:userid}"}}`),
			Request{Tags: map[string]string{"curfew:owner": "aidaana"}, Keys: ana}, false,
		},
		{
			"no tag", statement(`{"StringEquals":{"ssm:resourceTag/curfew:owner":"${aws:userid}"}}`), Request{
				Keys: ana,
			},
			false,
		},
		{
			"a variable without a value",
			statement(`{"StringEquals":{"ssm:resourceTag/curfew:owner":"${aws:PrincipalTag/curfew:owner}"}}`),
			Request{Tags: map[string]string{"curfew:owner": ""}}, false,
		},
		{
			"a wildcard in a tag is none", statement(`{"StringLike":{"ssm:resourceTag/a":"${aws:userid}"}}`),
			Request{Tags: map[string]string{"a": "AIDAANA"}, Keys: map[string]string{"aws:userid": "AIDA*"}}, false,
		},
		{
			"a wildcard for equality", statement(`{"StringEquals":{"s3:prefix":"a*"}}`),
			Request{Keys: map[string]string{"s3:prefix": "ab"}}, false,
		},
		{
			"an asterisk is itself for equality", statement(`{"StringEquals":{"s3:prefix":"a*"}}`),
			Request{Keys: map[string]string{"s3:prefix": "a*"}}, true,
		},
		{
			"a wildcard", statement(`{"StringLike":{"s3:prefix":"sessions/*"}}`),
			Request{Keys: map[string]string{"s3:prefix": "sessions/a/b"}}, true,
		},
		{
			"if exists, absent", statement(`{"BoolIfExists":{"ssm:SessionDocumentAccessCheck":"true"}}`), Request{},
			true,
		},
		{
			"if exists, false", statement(`{"BoolIfExists":{"ssm:SessionDocumentAccessCheck":"true"}}`),
			Request{Keys: map[string]string{"ssm:SessionDocumentAccessCheck": "false"}}, false,
		},
		{"absent", statement(`{"Bool":{"ec2:Encrypted":"true"}}`), Request{}, false},
		{
			"every condition", statement(`{"Null":{"aws:RequestTag/a":"false","aws:RequestTag/b":"false"}}`),
			Request{RequestTags: map[string]string{"a": "1"}}, false,
		},
		{
			"every condition holds", statement(`{"Null":{"aws:RequestTag/a":"false","aws:RequestTag/b":"false"}}`),
			Request{RequestTags: map[string]string{"a": "1", "b": "2"}}, true,
		},
		{
			"tags of the resource are none of the request", statement(`{"Null":{"aws:RequestTag/a":"false"}}`),
			Request{Tags: map[string]string{"a": "1"}}, false,
		},
	} {
		p, err := Parse([]byte(tc.policy))
		if err != nil {
			t.Fatal(err)
		}
		tc.request.Action = "ssm:StartSession"
		if got, err := p.Allows(tc.request); err != nil || got != tc.want {
			t.Errorf("%s: %v, want %v (%v)", tc.name, got, tc.want, err)
		}
	}
	for _, condition := range []string{
		`{"DateLessThan":{"aws:userid":"1"}}`, `{"StringEquals":{"aws:SourceIp":"1"}}`,
		`{"StringEquals":{"aws:TagKeys":"1"}}`, `{"ForAnyValue:StringEquals":{"aws:userid":"1"}}`,
	} {
		p, err := Parse([]byte(statement(condition)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Allows(Request{Action: "ssm:StartSession", Keys: ana}); err == nil {
			t.Errorf("%s was decided", condition)
		}
	}
}
