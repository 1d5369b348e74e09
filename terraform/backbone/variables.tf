variable "region" {
  description = "The region of the backbone and of the sessions that use it."
  type        = string
}

variable "name" {
  description = "Begins the names of buckets, roles, policies and the repository."
  type        = string
  default     = "curfew"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,17}$", var.name))
    error_message = "A name has 2 to 18 lower-case letters, digits and hyphens, and begins with a letter."
  }
}

variable "tags" {
  description = "Further tags of all resources."
  type        = map(string)
  default     = {}
}

variable "curfew_principals" {
  description = "ARNs of the users and roles that run curfew. They may assume its roles."
  type        = list(string)

  validation {
    condition     = length(var.curfew_principals) > 0 && alltrue([for a in var.curfew_principals : can(regex("^arn:[a-z-]+:iam::[0-9]{12}:(user|role)/", a))])
    error_message = "Name at least one user or role by its ARN. A wildcard or a whole account is not accepted."
  }
}

variable "external_id" {
  description = "The external id, the same as aws.external_id in curfew.yaml; null for none."
  type        = string
  default     = null

  validation {
    condition     = var.external_id == null ? true : can(regex("^[\\w+=,.@:/-]{2,}$", var.external_id))
    error_message = "An external id has at least two letters, digits and characters of _+=,.@:/-."
  }
}

variable "act" {
  description = "Whether to create the role that acts on what curfew governs."
  type        = bool
  default     = false
}

variable "governed_tags" {
  description = "What the acting role may end besides resources tagged curfew:managed=true: resources that have all tags of an element."
  type        = list(map(string))
  default     = []

  validation {
    condition     = alltrue([for tags in var.governed_tags : length(tags) > 0])
    error_message = "An element without tags would govern everything."
  }
}

variable "governed_buckets" {
  description = "Names of the buckets whose lifecycle rules and tags the acting role may change."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for name in var.governed_buckets : can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", name))])
    error_message = "Give the name of each bucket, without wildcards."
  }
}

variable "installations" {
  description = "The installations of curfew that may launch and end machines here, as the tag curfew:installation names them. Empty: every one."
  type        = list(string)
  default     = []
}

variable "owner_identity" {
  description = "What proves that a person owns a machine: the value of this IAM key has to equal the tag curfew:owner."
  type        = string
  default     = "aws:userid"

  validation {
    condition     = contains(["aws:userid", "aws:PrincipalTag/curfew:owner"], var.owner_identity)
    error_message = "Use aws:userid or aws:PrincipalTag/curfew:owner."
  }
}

variable "dataset_buckets" {
  description = "Further buckets that sessions may read."
  type        = list(string)
  default     = []
}

variable "cidr" {
  description = "Addresses of the VPC: /16 to /20."
  type        = string
  default     = "10.87.0.0/16"

  validation {
    condition     = can(cidrhost(var.cidr, 0)) && try(tonumber(split("/", var.cidr)[1]) >= 16 && tonumber(split("/", var.cidr)[1]) <= 20, false)
    error_message = "Write it as 10.87.0.0/16, with a prefix of 16 to 20."
  }
}

variable "zones" {
  description = "Availability zones to launch in, at most 8. Empty: all zones of the region."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.zones) <= 8
    error_message = "At most 8 zones."
  }
}

variable "nat_gateway" {
  description = "Whether machines have private addresses only and reach the internet through a NAT gateway. Without one they have public addresses and, as with one, no inbound rule."
  type        = bool
  default     = false
}

variable "log_retention_days" {
  description = "How long logs of sessions and recorded terminals are kept."
  type        = number
  default     = 30

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "CloudWatch Logs keeps logs for 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288 or 3653 days."
  }
}

variable "control_expire_days" {
  description = "After how many days the control documents of a session are deleted. Longer than any lease."
  type        = number
  default     = 30

  validation {
    condition     = var.control_expire_days >= 7 && floor(var.control_expire_days) == var.control_expire_days
    error_message = "At least 7 whole days."
  }
}

variable "noncurrent_days" {
  description = "How long replaced and deleted versions of objects are kept."
  type        = number
  default     = 30

  validation {
    condition     = var.noncurrent_days >= 1 && floor(var.noncurrent_days) == var.noncurrent_days
    error_message = "At least 1 whole day."
  }
}

variable "keep_images" {
  description = "How many tagged images of the repository are kept."
  type        = number
  default     = 20

  validation {
    condition     = var.keep_images >= 1 && floor(var.keep_images) == var.keep_images
    error_message = "At least 1."
  }
}

variable "state" {
  description = "Where the states of Terraform are: the bucket, the key of this state, and the prefix of the sessions' states. With it, a policy for the people who apply terraform/session is created."
  type = object({
    bucket         = string
    key            = string
    session_prefix = string
  })
  default = null

  validation {
    condition     = var.state == null ? true : endswith(var.state.session_prefix, "/") && !startswith(var.state.key, var.state.session_prefix)
    error_message = "The prefix of the sessions ends with / and does not hold the state of the backbone."
  }
}

variable "runners" {
  description = "The runners of pipelines that run commands by curfew ci run: the ARN of their OIDC provider, audience and subjects of their tokens, and how many hours their credentials last. With it, a role for them is created."
  type = object({
    provider = string
    audience = optional(string, "sts.amazonaws.com")
    subjects = list(string)
    hours    = optional(number, 4)
  })
  default = null

  validation {
    condition     = var.runners == null ? true : can(regex("^arn:[a-z-]+:iam::[0-9]{12}:oidc-provider/.", var.runners.provider))
    error_message = "Name the provider by its ARN, such as arn:aws:iam::111122223333:oidc-provider/token.actions.githubusercontent.com."
  }
  validation {
    condition     = var.runners == null ? true : length(var.runners.subjects) > 0 && alltrue([for s in var.runners.subjects : can(regex("^[^*?]+:[^*?]+", s))])
    error_message = "Name at least one subject, such as repo:acme/vision:ref:refs/heads/main. None begins with a wildcard."
  }
  validation {
    condition     = var.runners == null ? true : var.runners.hours >= 1 && var.runners.hours <= 12 && floor(var.runners.hours) == var.runners.hours
    error_message = "Credentials of a role last 1 to 12 whole hours."
  }
}
