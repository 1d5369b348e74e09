variable "central_role_arn" {
  description = "ARN of the role in the central account that runs curfew."
  type        = string
}

variable "external_id" {
  description = "The external id, the same as aws.external_id in curfew.yaml."
  type        = string

  validation {
    condition     = can(regex("^[\\w+=,.@:/-]{2,}$", var.external_id))
    error_message = "An external id has at least two letters, digits and characters of _+=,.@:/-."
  }
}

variable "act" {
  description = "Whether to create the role that acts."
  type        = bool
  default     = false
}

variable "governed_tags" {
  description = "What the acting role may end besides resources tagged curfew:managed=true: resources that have all tags of an element, such as { \"curfew:lifetime\" = \"ephemeral\" }."
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

variable "read_role_name" {
  description = "Name of the role that reads."
  type        = string
  default     = "curfew-read"
}

variable "act_role_name" {
  description = "Name of the role that reads and acts."
  type        = string
  default     = "curfew-act"
}
