# A timer on the machine ends it by its lease, whatever happens to Terraform or curfew.

locals {
  lease = formatdate("YYYY-MM-DD hh:mm:ss 'UTC'", timeadd(var.lease_until, "0s"))

  user_data = join("\n", [
    "#cloud-config",
    yamlencode({
      write_files = [
        {
          path        = "/etc/systemd/system/curfew-lease.service"
          permissions = "0644"
          content     = "[Unit]\nDescription=The lease of this session is over\n[Service]\nType=oneshot\nExecStart=/usr/bin/systemctl poweroff\n"
        },
        {
          path        = "/etc/systemd/system/curfew-lease.timer"
          permissions = "0644"
          content     = "[Unit]\nDescription=Ends this session at the end of its lease\n[Timer]\nOnCalendar=${local.lease}\nPersistent=true\n[Install]\nWantedBy=timers.target\n"
        },
      ]
      # The timer first, so that a set-up that hangs ends too.
      runcmd = concat([["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", "curfew-lease.timer"]], var.setup == "" ? [] : [["sh", "-c", var.setup]])
    }),
  ])
}
