// What the server says about notifications.

export type ChannelKind = "webhook" | "ntfy" | "slack" | "discord" | "email" | "push";
export type NotificationEvent = "opened" | "escalated" | "closing";

export interface NotificationChannel {
  id: string;
  kind: ChannelKind;
  label: string;
  /** Where it leads, without what is secret about it. */
  target: string;
  enabled: boolean;
  last_error?: string | null;
  last_delivery?: string | null;
  /** The key that signs what a webhook gets, only when the channel is made. */
  secret?: string | null;
}

export interface QuietHours {
  /** A time of day, such as `22:00`. */
  from: string;
  to: string;
  time_zone: string;
}

/** What a person chooses. */
export interface NotificationPreferences {
  events: NotificationEvent[];
  /** `null` means all. */
  sessions: string[] | null;
  quiet_hours: QuietHours | null;
  show_command: boolean;
  vote_links: boolean;
}

export interface NotificationSettings extends NotificationPreferences {
  channels: NotificationChannel[];
  /** What the operator allows. */
  kinds: ChannelKind[];
  vote_links_allowed?: boolean;
}

export interface ChannelTest {
  delivered: boolean;
  error?: string | null;
}
