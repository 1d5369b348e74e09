package wire

import "strings"

// s3Subresources names the operation of a bucket's subresource without its verb: GET lifecycle is
// GetBucketLifecycleConfiguration.
var s3Subresources = map[string]string{
	"lifecycle": "BucketLifecycleConfiguration", "versioning": "BucketVersioning", "tagging": "BucketTagging",
	"location": "BucketLocation", "policy": "BucketPolicy", "policyStatus": "BucketPolicyStatus", "acl": "BucketAcl",
	"encryption": "BucketEncryption", "logging": "BucketLogging", "replication": "BucketReplication",
	"inventory": "BucketInventoryConfiguration", "intelligent-tiering": "BucketIntelligentTieringConfiguration",
	"analytics": "BucketAnalyticsConfiguration", "metrics": "BucketMetricsConfiguration", "cors": "BucketCors",
	"notification": "BucketNotificationConfiguration", "publicAccessBlock": "PublicAccessBlock",
	"ownershipControls": "BucketOwnershipControls", "requestPayment": "BucketRequestPayment",
	"website":     "BucketWebsite",
	"object-lock": "ObjectLockConfiguration", "accelerate": "BucketAccelerateConfiguration",
}

var s3Verbs = map[string]string{"GET": "Get", "PUT": "Put", "DELETE": "Delete", "HEAD": "Head"}

// bucketKey splits a path-style S3 path.
func bucketKey(path string) (bucket, key string) {
	bucket, key, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return bucket, key
}

// s3Operation returns the name of an S3 call by its method, path and query.
func s3Operation(c *Call) string {
	if id := c.Query.Get("x-id"); id != "" {
		return id
	}
	bucket, key := bucketKey(c.Path)
	has := func(q string) bool { return c.Query.Has(q) }
	switch {
	case bucket == "":
		return "ListBuckets"
	case key != "":
		return s3ObjectOperation(c)
	}
	switch {
	case has("uploads"):
		return "ListMultipartUploads"
	case has("versions"):
		return "ListObjectVersions"
	case has("delete"):
		return "DeleteObjects"
	}
	for q, noun := range s3Subresources {
		if has(q) {
			if q == "lifecycle" && c.Method == "DELETE" {
				return "DeleteBucketLifecycle"
			}
			return s3Verbs[c.Method] + noun
		}
	}
	switch c.Method {
	case "GET":
		if c.Query.Get("list-type") == "2" {
			return "ListObjectsV2"
		}
		return "ListObjects"
	case "PUT":
		return "CreateBucket"
	case "HEAD":
		return "HeadBucket"
	case "DELETE":
		return "DeleteBucket"
	}
	return ""
}

func s3ObjectOperation(c *Call) string {
	has := func(q string) bool { return c.Query.Has(q) }
	switch {
	case c.Method == "GET" && has("uploadId"):
		return "ListParts"
	case c.Method == "PUT" && has("uploadId"):
		return "UploadPart"
	case c.Method == "POST" && has("uploads"):
		return "CreateMultipartUpload"
	case c.Method == "POST" && has("uploadId"):
		return "CompleteMultipartUpload"
	case c.Method == "DELETE" && has("uploadId"):
		return "AbortMultipartUpload"
	case has("tagging"):
		return s3Verbs[c.Method] + "ObjectTagging"
	case has("acl"):
		return s3Verbs[c.Method] + "ObjectAcl"
	}
	if v := s3Verbs[c.Method]; v != "" {
		return v + "Object"
	}
	return ""
}

// route is an operation of a REST service: a method and a path in which * matches one segment.
type route struct{ method, path, operation string }

var routes = map[string][]route{
	"eks": {
		{"GET", "/clusters", "ListClusters"},
		{"POST", "/clusters", "CreateCluster"},
		{"GET", "/clusters/*", "DescribeCluster"},
		{"DELETE", "/clusters/*", "DeleteCluster"},
	},
	"elasticfilesystem": {
		{"GET", "/2015-02-01/file-systems", "DescribeFileSystems"},
		{"POST", "/2015-02-01/file-systems", "CreateFileSystem"},
		{"DELETE", "/2015-02-01/file-systems/*", "DeleteFileSystem"},
		{"PUT", "/2015-02-01/file-systems/*", "UpdateFileSystem"},
		{"GET", "/2015-02-01/file-systems/*/lifecycle-configuration", "DescribeLifecycleConfiguration"},
		{"PUT", "/2015-02-01/file-systems/*/lifecycle-configuration", "PutLifecycleConfiguration"},
		{"GET", "/2015-02-01/mount-targets", "DescribeMountTargets"},
		{"POST", "/2015-02-01/mount-targets", "CreateMountTarget"},
		{"GET", "/2015-02-01/access-points", "DescribeAccessPoints"},
		{"GET", "/2015-02-01/resource-tags/*", "ListTagsForResource"},
		{"POST", "/2015-02-01/resource-tags/*", "TagResource"},
		{"DELETE", "/2015-02-01/resource-tags/*", "UntagResource"},
	},
	"es": {
		{"GET", "/2021-01-01/domain", "ListDomainNames"},
		{"POST", "/2021-01-01/opensearch/domain", "CreateDomain"},
		{"GET", "/2021-01-01/opensearch/domain/*", "DescribeDomain"},
		{"DELETE", "/2021-01-01/opensearch/domain/*", "DeleteDomain"},
		{"GET", "/2021-01-01/opensearch/domain/*/config", "DescribeDomainConfig"},
		{"POST", "/2021-01-01/opensearch/domain/*/config", "UpdateDomainConfig"},
		{"POST", "/2021-01-01/opensearch/domain-info", "DescribeDomains"},
		{"GET", "/2021-01-01/tags", "ListTags"},
		{"GET", "/2021-01-01/tags/", "ListTags"},
		{"POST", "/2021-01-01/tags", "AddTags"},
		{"POST", "/2021-01-01/tags-removal", "RemoveTags"},
	},
}

// restOperation returns the name of a REST/JSON call; savingsplans has the operation's name in the
// path.
func restOperation(c *Call) string {
	for _, r := range routes[c.Service] {
		if r.method == c.Method && pathMatches(r.path, c.Path) {
			return r.operation
		}
	}
	if c.Service == "savingsplans" && c.Method == "POST" {
		return strings.Trim(c.Path, "/")
	}
	return ""
}

func pathMatches(pattern, path string) bool {
	p, q := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(p) != len(q) {
		return false
	}
	for i := range p {
		if p[i] != q[i] && (p[i] != "*" || q[i] == "") {
			return false
		}
	}
	return true
}
