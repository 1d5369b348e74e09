variable "backbone" {
  description = "Where the state of the backbone is, as of terraform_remote_state: backend = \"s3\" and its bucket, key and region."
  type = object({
    backend = string
    config  = map(string)
  })
}

variable "session" {
  description = "Name of the session."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{0,40}$", var.session))
    error_message = "A name has at most 41 lower-case letters, digits and hyphens."
  }
}

variable "owner" {
  description = "Whose the session is: the value that the backbone's owner_identity has for the person who may connect, the UserId of aws sts get-caller-identity by default."
  type        = string

  validation {
    condition     = length(var.owner) > 0
    error_message = "A session without an owner could not be entered by anyone."
  }
}

variable "installation" {
  description = "The tag curfew:installation: one of the backbone's installations where it names them."
  type        = string
  default     = "terraform"

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9._-]*$", var.installation))
    error_message = "Machines without an installation may not be launched; its name has letters, digits, dots, dashes and underscores."
  }
}

variable "external_id" {
  description = "The external id of the backbone's roles; null for none."
  type        = string
  default     = null
}

variable "instance_type" {
  description = "Machine type, such as g6.2xlarge."
  type        = string
}

variable "nodes" {
  description = "How many machines."
  type        = number
  default     = 1

  validation {
    condition     = var.nodes >= 1 && floor(var.nodes) == var.nodes
    error_message = "At least 1."
  }
}

variable "zone" {
  description = "Availability zone; null: the first of the backbone."
  type        = string
  default     = null
}

variable "spot" {
  description = "Whether to launch on spot."
  type        = bool
  default     = false
}

variable "disk_gib" {
  description = "Size of the root volume in GiB."
  type        = number
  default     = 200

  validation {
    condition     = var.disk_gib >= 8 && var.disk_gib <= 16384 && floor(var.disk_gib) == var.disk_gib
    error_message = "8 to 16384 whole GiB."
  }
}

variable "image_parameter" {
  description = "Public parameter that names the image."
  type        = string
  default     = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
}

variable "lease_until" {
  description = "When the machines end by themselves, in UTC: 2026-11-24T18:00:00Z. It is set at the launch."
  type        = string

  validation {
    condition     = can(regex("Z$", var.lease_until)) && can(timeadd(var.lease_until, "0s"))
    error_message = "Write it in UTC, as 2026-11-24T18:00:00Z."
  }
}

variable "setup" {
  description = "Shell commands to run once as root."
  type        = string
  default     = ""
}

variable "tags" {
  description = "Further tags of machines and disks, such as team and project."
  type        = map(string)
  default     = {}
}
