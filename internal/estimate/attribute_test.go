package estimate

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestReviewsEveryProviderAttribute checks that every attribute of a priced type, as the providers
// declare them, is in attributes.txt, and nothing else is. `make terraform-schema` writes the
// schema; a new attribute then has to be reviewed.
func TestReviewsEveryProviderAttribute(t *testing.T) {
	src, err := os.ReadFile("testdata/schema.txt")
	if err != nil {
		t.Fatal(err)
	}
	schema := map[string][]string{}
	for line := range strings.Lines(string(src)) {
		if kind, path, ok := strings.Cut(strings.TrimSpace(line), " "); ok && kind != "#" {
			schema[kind] = append(schema[kind], path)
			if known, _ := review(kind, path); !known {
				t.Errorf("%s: %s is not reviewed", kind, path)
			}
		}
	}
	for kind := range meters {
		if len(schema[kind]) == 0 {
			t.Errorf("%s is priced, and its schema is not in testdata/schema.txt", kind)
		}
	}
	// Blocks that only the provider sets, which its npm package leaves out, and attributes of
	// versions before.
	unlisted := map[string]bool{
		"aws_eks_node_group resources": true, "aws_sagemaker_notebook_instance accelerator_types": true,
		"aws_db_instance listener_endpoint": true, "aws_db_instance master_user_secret": true,
		"aws_cloudformation_stack outputs":             true,
		"aws_nat_gateway regional_nat_gateway_address": true, "google_compute_instance effective_labels": true,
		"google_compute_instance terraform_labels": true}
	for kind, list := range reviewed() {
		if strings.HasPrefix(kind, "AWS::") {
			if stackTypes[kind].kind == "" {
				t.Errorf("%s is reviewed and not priced", kind)
			}
			continue
		}
		for path := range list {
			if !unlisted[kind+" "+path] && !slices.ContainsFunc(schema[kind], func(p string) bool {
				return p == path || strings.HasPrefix(p, path+".")
			}) {
				t.Errorf("%s: %s is no attribute of the provider", kind, path)
			}
		}
	}
	for kind := range stackTypes {
		if len(reviewed()[kind]) == 0 {
			t.Errorf("no property of %s is reviewed", kind)
		}
	}
}
