region            = "us-east-1"
curfew_principals = ["arn:aws:iam::111122223333:role/platform"]
act               = true

# Where the states are: people who apply terraform/session may read that of the backbone.
state = {
  bucket         = "example-terraform-states"
  key            = "curfew/backbone.tfstate"
  session_prefix = "curfew/sessions/"
}
