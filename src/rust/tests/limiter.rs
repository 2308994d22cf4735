// SPDX-License-Identifier: MIT
//! The safe wrapper, by what the library answers.
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stint::*;

/// A table's path that is free, in the fastest file system that there is.
struct Table(PathBuf);

impl Table {
    fn new(name: &str) -> Table {
        let path = PathBuf::from("/dev/shm").join(format!("stint-{}-{}", name, std::process::id()));
        let _ = std::fs::remove_file(&path);
        Table(path)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn limiter(policy: &str) -> (Limiter, PolicyId) {
    let limiter = Options::new(10_000).labels(16).open().unwrap();
    let id = limiter.add_text(policy).unwrap();
    (limiter, id)
}

/// A day that never ends.
extern "C" fn noon() -> u64 {
    1_700_000_000 * 1_000_000_000
}

#[test]
fn takes_looks_and_gives_back() {
    let limiter = Options::new(100).clock(noon).secret(&[7; 192]).prefault().open().unwrap();
    let id = limiter.add_text("3/day near=50%").unwrap();
    let key = limiter.key("ann");
    assert_eq!(limiter.now(), noon());
    let mut verdict = limiter.take(id, key, 2);
    assert!(verdict.allowed() && verdict.has(Verdict::NEAR_LIMIT));
    assert_eq!(verdict.policy(), Some(id));
    assert_eq!((verdict.capacity(), verdict.used(), verdict.remaining()), (3, 2, 1));
    assert_eq!(verdict.granted(), 2);
    let day = Duration::from_secs(86400);
    let left = day - Duration::from_secs(1_700_000_000 % 86400);
    assert_eq!(verdict.reset_after(), left);
    assert_eq!(verdict.retry_after(), Some(Duration::ZERO));

    let refused = limiter.take(id, key, 2);
    assert!(!refused.allowed() && refused.has(Verdict::FIRST_REFUSAL));
    assert_eq!(refused.retry_after(), Some(left));
    assert_eq!(limiter.take(id, key, 4).retry_after(), None);
    assert!(!limiter.decide(&Request::new(id, key, 2).peek()).allowed());
    assert_eq!(limiter.decide(&Request::new(id, key, 9).partial()).granted(), 1);
    assert!(!limiter.allows(id, key, 1));
    assert_eq!(limiter.refund_tokens(key, &mut verdict, 1), 1);
    assert!(!limiter.decide(&Request::new(id, key, 2).drain()).allowed());
    assert!(!limiter.allows(id, key, 1));
    limiter.reset(id, key);
    let tomorrow = noon() + day.as_nanos() as u64;
    assert!(limiter.take_at(id, key, 0, tomorrow).has(Verdict::MISTAKEN_NOW));
    let mut verdict = limiter.take_at(id, key, 3, noon() + 1_000_000_000);
    assert!(verdict.allowed() && !verdict.has(Verdict::MISTAKEN_NOW));
    assert_eq!(limiter.refund(key, &mut verdict), 3);
    assert_eq!(limiter.refund(key, &mut verdict), 0);
    assert!(!limiter.decide(&Request::new(id, key, 2).limit(1)).allowed());
    let charged = limiter.decide(&Request::new(id, key, 5).charge());
    assert_eq!((charged.granted(), charged.used()), (5, 5));
    assert!(limiter.take(PolicyId(9), key, 1).has(Verdict::UNKNOWN_POLICY));
    let bad = Request::new(id, key, 1).charge().partial();
    assert!(limiter.decide(&bad).has(Verdict::BAD_REQUEST));
    assert!(limiter.check(&bad).unwrap_err().to_string().contains("STINT_PARTIAL"));
    assert_eq!(limiter.check(&Request::new(PolicyId(9), key, 1)).unwrap_err().errno(), 2);
    assert_eq!(limiter.check(&Request::new(id, key, 1)), Ok(()));

    let bucket = limiter.add_text("10/day burst=10 name=bucket").unwrap();
    let part = |burst: u32| Request::new(bucket, key, 9).partial().burst(burst);
    let granted = [6, 6, 8, 99].map(|burst| limiter.decide(&part(burst)).granted());
    assert_eq!(granted, [6, 0, 2, 2]);
    let why = limiter.check(&Request::new(id, key, 1).burst(6)).unwrap_err();
    assert!(why.to_string().contains("burst goes with token buckets only"), "{why}");
    let why = limiter.check(&Request::new(bucket, key, 1).charge().burst(6)).unwrap_err();
    assert!(why.to_string().contains("STINT_CHARGE does not go with a burst"), "{why}");

    let ahead = limiter.add_text("3/day reserve=3 name=ahead").unwrap();
    assert!(limiter.allows(ahead, key, 3));
    let verdict = limiter.decide(&Request::new(ahead, key, 3).reserve());
    assert!(verdict.allowed());
    assert_eq!(verdict.retry_after(), Some(left));
}

#[test]
fn a_bucket_fills_continuously() {
    let limiter = Options::new(100).clock(noon).open().unwrap();
    let id = limiter.add_text("10/s burst=20 reserve=5").unwrap();
    let key = limiter.key("ann");
    assert_eq!(limiter.policy(id).unwrap().burst(), 20);
    let mut verdict = limiter.take(id, key, 20);
    assert_eq!((verdict.granted(), verdict.capacity()), (20, 20));
    assert_eq!(verdict.window(), noon() + 2_000_000_000);
    assert_eq!(verdict.reset_after(), Duration::from_secs(2));
    let wait = Duration::from_millis(100);
    assert_eq!(limiter.take(id, key, 1).retry_after(), Some(wait));
    assert_eq!(limiter.decide(&Request::new(id, key, 1).reserve()).retry_after(), Some(wait));
    assert_eq!(limiter.refund(key, &mut verdict), 20);
    assert!(limiter.allows(id, key, 19) && !limiter.allows(id, key, 1));
}

#[test]
fn keys_with_limits_of_their_own() {
    let (limiter, id) = limiter("2/52w ban=1h");
    let (vip, bad) = (limiter.key("vip"), limiter.key("bad"));
    let until = limiter.now() + 60_000_000_000;
    limiter.set_override(id, vip, 5, until).unwrap();
    let (limit, end) = limiter.get_override(id, vip).unwrap();
    assert!(limit == 5 && (until..=until + 10_000_000).contains(&end));
    assert!(limiter.allows(id, vip, 5));
    assert!(limiter.take(id, vip, 1).has(Verdict::OVERRIDDEN));
    limiter.clear_override(id, vip).unwrap();
    assert_eq!(limiter.get_override(id, vip).unwrap_err().errno(), 2);
    assert_eq!(limiter.clear_override(id, vip).unwrap_err().errno(), 2);
    assert!(!limiter.allows(id, bad, 3));
    assert!(limiter.take(id, bad, 1).has(Verdict::BANNED));
    assert!(limiter.set_override(id, vip, 5, u64::MAX).is_err());
}

#[test]
fn keys_stay_apart() {
    let (limiter, _) = limiter("1/s");
    assert_ne!(limiter.join(limiter.key("ab"), "c"), limiter.join(limiter.key("a"), "bc"));
    assert_eq!(limiter.key([1u8, 0, 2]), limiter.key(vec![1u8, 0, 2]));
    assert_ne!(limiter.key(""), Key::GLOBAL);
    limiter.prefetch(Key::GLOBAL);
    assert_ne!(limiter.key_of_id(7), limiter.key(7u64.to_ne_bytes()));
    assert_eq!(limiter.key_of_id(7), limiter.key_of_id(7));
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let key = |text, four, six| limiter.address(ip(text), four, six);
    assert_eq!(key("192.0.2.1", 24, 0), key("192.0.2.9", 24, 0));
    assert_eq!(key("192.0.2.1", 0, 0), key("::ffff:192.0.2.1", 0, 0));
    assert_ne!(key("192.0.2.1", 0, 0), key("192.0.2.2", 0, 0));
    assert_eq!(key("2001:db8::1", 0, 0), key("2001:db8::2", 0, 0));
    assert_ne!(key("2001:db8::1", 0, 128), key("2001:db8::2", 0, 128));
}

#[test]
fn many_requests_at_once() {
    let (limiter, id) = limiter("2/52w name=first");
    let second = limiter.add_text("1/52w name=second").unwrap();
    let (ann, bob) = (limiter.key("ann"), limiter.key("bob"));
    let mut verdicts = [Verdict::default(); 4];
    let pair = [Request::new(id, ann, 1), Request::new(second, ann, 1)];
    assert!(limiter.decide_all(&pair, &mut verdicts[..2]));
    assert!(!limiter.decide_all(&pair, &mut verdicts[..2]));
    assert!(verdicts[0].allowed() && !verdicts[1].allowed());
    assert_eq!(Verdict::tightest(&verdicts[..2]), Some(1));
    assert_eq!(Verdict::tightest(&[]), None);
    assert!(limiter.decide_all(&[], &mut []));

    let groups = [pair[0], pair[1], Request::new(id, bob, 1), Request::new(second, bob, 1)];
    assert_eq!(limiter.decide_groups(&groups, &[2, 0, 2], &mut verdicts), 2);
    assert_eq!(limiter.refund_all(&groups[2..], &mut verdicts[2..]), 2);
    assert_eq!(limiter.decide_batch(&groups, &mut verdicts), 3);
    assert_eq!(limiter.decide_groups(&[], &[], &mut []), 0);
}

#[test]
#[should_panic(expected = "there is a verdict for each request")]
fn too_few_verdicts() {
    let (limiter, id) = limiter("1/s");
    limiter.decide_all(&[Request::new(id, Key::GLOBAL, 1)], &mut []);
}

#[test]
#[should_panic(expected = "the groups have all requests")]
fn a_group_beyond_the_requests() {
    let (limiter, id) = limiter("1/s");
    let requests = [Request::new(id, Key::GLOBAL, 1)];
    limiter.decide_groups(&requests, &[2], &mut [Verdict::default()]);
}

#[test]
#[should_panic(expected = "the groups have all requests")]
fn a_request_of_no_group() {
    let (limiter, id) = limiter("1/s");
    let requests = [Request::new(id, Key::GLOBAL, 1)];
    limiter.decide_groups(&requests, &[0], &mut [Verdict::default()]);
}

#[test]
fn policies() {
    let (limiter, id) = limiter("100/minute name=api");
    let policy = limiter.policy(id).unwrap();
    assert_eq!((policy.name().as_str(), policy.limit()), ("api", 100));
    assert_eq!(policy.raw().window, 60_000_000_000);
    assert_eq!(policy.to_string(), "100/minute name=\"api\"");
    assert_eq!(policy.note().unwrap(), "");
    let short: Policy = "100/minute ban=1s".parse().unwrap();
    assert!(short.note().unwrap().contains("shorter than the window"));
    assert_eq!(policy.to_string().parse::<Policy>().unwrap().to_string(), policy.to_string());
    assert_eq!(limiter.find("api"), Ok(id));
    assert_eq!(limiter.add(&policy), Ok(id));
    limiter.change_check(id, &"200/minute name=api".parse().unwrap()).unwrap();
    assert!(limiter.change_check(id, &"200/hour name=api".parse().unwrap()).is_err());
    limiter.change(id, &"200/minute name=api".parse().unwrap()).unwrap();

    let text = "300/minute name=api\n5/s name=new";
    let dry = limiter.apply_dry(text, false).unwrap();
    assert_eq!((dry[1].kind, dry[1].id), (ChangeKind::Added, None));
    let changes = limiter.apply(text, false).unwrap();
    let kinds: Vec<ChangeKind> = changes.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Changed, ChangeKind::Added]);
    assert_eq!(changes[0].id, Some(id));
    assert_eq!(changes[0].was.as_deref(), Some("200/minute name=\"api\""));
    let changes = limiter.apply("3/s name=api", true).unwrap();
    let kinds: Vec<ChangeKind> = changes.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Replaced, ChangeKind::Removed]);
    assert_eq!((changes[1].name.as_str(), &changes[1].text), ("new", &None));
    limiter.remove(limiter.find("api").unwrap()).unwrap();
    assert_eq!(limiter.find("api").unwrap_err().errno(), 2);
}

#[test]
fn errors_have_reasons() {
    let error = Options::new(0).open().unwrap_err();
    assert_eq!(error.errno(), 22);
    assert!(error.to_string().contains("max_entries"), "{}", error);
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::InvalidInput);
    let error = Options::existing("/nowhere/table").attach().unwrap_err();
    assert_eq!(error.errno(), 2);
    assert!(error.to_string().starts_with("/nowhere/table"), "{}", error);
    assert!(Options::new(1).path("a\0b").open().unwrap_err().to_string().contains("NUL"));
    assert!("many/s".parse::<Policy>().is_err());
    assert!("1/s\0".parse::<Policy>().unwrap_err().to_string().contains("NUL"));
    let (limiter, id) = limiter("1/s name=p");
    assert_eq!(limiter.add_text("1/minute name=p").unwrap_err().errno(), 17);
    assert!(limiter.change(id, &"1/minute name=p".parse().unwrap()).is_err());
    assert!(limiter.policy(PolicyId(7)).is_err());
    assert!(limiter.policy_stats(PolicyId(7)).is_err());
    assert!(limiter.apply("1/s\nmany", false).unwrap_err().to_string().contains("line 2"));
}

#[test]
fn what_is_told() {
    let (limiter, id) = limiter("2/52w name=p");
    let key = limiter.key("ann");
    let verdicts = [limiter.take(id, key, 2)];
    let refused = [limiter.take(id, key, 2)];
    let both = limiter.headers(Style::Both, &verdicts).unwrap();
    assert!(both.contains("RateLimit-Policy: \"p\";q=2;w=31449600\r\n"), "{}", both);
    assert!(both.contains("X-RateLimit-Limit: 2\r\n"), "{}", both);
    let retry = limiter.headers(Style::RetryAfter, &refused).unwrap();
    assert!(retry.starts_with("Retry-After: "), "{}", retry);
    assert_eq!(limiter.headers(Style::RetryAfter, &verdicts).unwrap(), "");

    limiter.label(key, "ann").unwrap();
    let mut entries = Vec::new();
    limiter
        .each(|entry| {
            entries.push(entry);
            true
        })
        .unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].policy, entries[0].used), (id, 2));
    assert_eq!((entries[0].label.as_slice(), entries[0].refused_windows), (&b"ann"[..], 1));

    let stats = limiter.stats().unwrap();
    assert_eq!((stats.policies, stats.live), (1, 1));
    let stats = limiter.policy_stats(id).unwrap();
    assert_eq!((stats.allowed, stats.refused, stats.first_refusals), (1, 1, 1));
    let options = MetricsOptions { labels: &[("table", "logins")], no_eof: true, no_scan: true };
    let text = limiter.metrics(&options).unwrap();
    assert!(text.contains("table=\"logins\"") && !text.contains("# EOF"), "{}", text);
    assert!(limiter.metrics(&MetricsOptions::default()).unwrap().ends_with("# EOF\n"));
    assert!(version().starts_with("0.5."));
}

#[test]
#[should_panic(expected = "in the callback")]
fn a_panic_comes_back_through_c() {
    let (limiter, id) = limiter("2/52w");
    limiter.allows(id, Key::GLOBAL, 1);
    let _ = limiter.each(|_| panic!("in the callback"));
}

#[test]
fn a_file_and_its_reader() {
    let table = Table::new("file");
    let options =
        Options::new(1000).path(&table.0).mode(0o640).max_policies(8).on_full(OnFull::Refuse);
    let limiter = options.open().unwrap();
    let id = limiter.add_text("3/52w name=p").unwrap();
    let client = limiter.key("ann");
    assert!(limiter.allows(id, client, 2));
    drop(limiter);

    let limiter = options.open().unwrap();
    assert!(!limiter.allows(id, client, 2));
    assert!(limiter.allows(id, client, 1));
    let reader = Options::existing(&table.0).read_only().attach().unwrap();
    let id = reader.find("p").unwrap();
    assert!(!reader.decide(&Request::new(id, client, 1).peek()).allowed());
    assert!(reader.decide(&Request::new(id, reader.key("bob"), 1).peek()).allowed());
    assert_eq!(reader.add_text("1/s").unwrap_err().errno(), 30);

    assert_eq!(Options::new(0).resize(&table.0).unwrap_err().errno(), 16);
    drop((limiter, reader));
    Options::new(20_000).resize(&table.0).unwrap();
    let limiter = Options::existing(&table.0).attach().unwrap();
    assert!(limiter.stats().unwrap().slots >= 40_000);
    assert!(!limiter.allows(id, client, 1));
    // SAFETY: the limiter is open.
    assert_ne!(unsafe { sys::stint_now(limiter.as_raw()) }, 0);
}

/// A over-admits nothing, and B refuses nothing that would have fitted.
#[test]
fn threads_are_granted_the_limit() {
    let (limiter, id) = limiter("5000/52w");
    let key = limiter.key("ann");
    let granted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    if limiter.allows(id, key, 1) {
                        granted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(granted.into_inner(), 5000);
}
