//! Gets certificates from an ACME authority such as Let's Encrypt, and renews them.
//!
//! The authority connects to port 443 of the domain and asks for a certificate that only we could have
//! made (tls-alpn-01, RFC 8737), so that no other port and no file is needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationStatus, ChallengeType, Identifier,
    NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use pvp_protocol::hex;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::certificate::Certificate;
use super::private_file;
use super::resolver::CertificateResolver;

/// How long an authority may take for everything.
const ORDER_TIMEOUT: Duration = Duration::from_secs(300);

/// The wait after a first failure, which doubles with each: authorities refuse whoever fails five
/// times in an hour.
const FIRST_RETRY: Duration = Duration::from_secs(300);
const LONGEST_RETRY: Duration = Duration::from_secs(12 * 3600);

/// How often it is looked whether a certificate is to be renewed.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// The wait after a certificate that was to be renewed when it came, which another order does not
/// mend: authorities sign five with the same names in a week.
const DUE_ON_ARRIVAL_RETRY: Duration = Duration::from_secs(2 * 86_400);

/// What a certificate is asked for with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AcmeSettings {
    pub(crate) domain: String,
    pub(crate) email: Option<String>,
    /// The address of the authority's directory.
    pub(crate) directory: String,
    /// The only certificates that the authority's server may be signed with; those that the machine
    /// trusts if `None`.
    pub(crate) root: Option<PathBuf>,
}

/// The certificate of a domain, and where it is kept.
pub(super) struct AcmeCertificate {
    settings: AcmeSettings,
    /// The account at the authority.
    account_file: PathBuf,
    /// The key and the chain, in one file so that they are replaced together.
    certificate_file: PathBuf,
    /// Whether there was none that could be used.
    is_missing: bool,
}

/// An account, as it is kept.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    directory: String,
    credentials: AccountCredentials,
}

impl AcmeCertificate {
    /// Loads the certificate that is kept, or makes one that nobody trusts until the authority has
    /// sent another.
    pub(super) async fn open(
        data: &Path,
        settings: AcmeSettings,
    ) -> anyhow::Result<(Self, Certificate)> {
        let kept_in = data.join("acme");
        tokio::fs::create_dir_all(&kept_in)
            .await
            .with_context(|| format!("making {}", kept_in.display()))?;
        // A certificate of a test authority is not taken for that of a real one.
        let authority = hex::encode(&Sha256::digest(&settings.directory)[..4]);
        let certificate_file = kept_in.join(format!("{}-{authority}.pem", settings.domain));
        let kept = load(&certificate_file).await?;
        let acme = Self {
            account_file: kept_in.join(format!("account-{authority}.json")),
            certificate_file,
            is_missing: kept.is_none(),
            settings,
        };
        let certificate = match kept {
            Some(certificate) => certificate,
            None => acme.untrusted()?,
        };
        Ok((acme, certificate))
    }

    /// A certificate that nobody trusts.
    fn untrusted(&self) -> anyhow::Result<Certificate> {
        let key = KeyPair::generate().context("making a key for TLS")?;
        let params = CertificateParams::new(vec![self.settings.domain.clone()])?;
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Certificate::new(vec![certificate], private_key(&key))?)
    }

    /// Gets a certificate whenever one is needed. Never ends.
    pub(super) async fn keep_renewed(&self, resolver: &CertificateResolver) {
        let mut schedule = OrderSchedule::new(&self.settings.domain, self.is_missing);
        loop {
            let wait = schedule.order_if_due(resolver, self.renew(resolver)).await;
            tokio::time::sleep(wait).await;
        }
    }

    async fn renew(&self, resolver: &CertificateResolver) -> anyhow::Result<()> {
        let ordered = timeout(ORDER_TIMEOUT, self.order(resolver)).await;
        resolver.set_challenge(None);
        let pem = ordered.context("the authority took too long")??;
        let certificate = Certificate::from_pem(pem.as_bytes(), pem.as_bytes());
        let certificate = certificate.context("what the authority sent")?;
        private_file::write(&self.certificate_file, pem.as_bytes())
            .await
            .with_context(|| format!("writing {}", self.certificate_file.display()))?;
        resolver.replace(certificate);
        Ok(())
    }

    /// Orders a certificate; returns its key and chain.
    async fn order(&self, resolver: &CertificateResolver) -> anyhow::Result<String> {
        let account = self.account().await?;
        let names = [Identifier::Dns(self.settings.domain.clone())];
        let mut order = account.new_order(&NewOrder::new(&names)).await?;
        self.prove(&mut order, resolver).await?;
        let retries = RetryPolicy::default();
        let status = order.poll_ready(&retries).await?;
        if status != OrderStatus::Ready {
            bail!("{}", rejection(&mut order).await);
        }
        let key = KeyPair::generate().context("making a key for TLS")?;
        let mut params = CertificateParams::new(vec![self.settings.domain.clone()])?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key)?;
        order.finalize_csr(request.der()).await?;
        let chain = order.poll_certificate(&retries).await?;
        Ok(format!("{}{chain}", key.serialize_pem()))
    }

    /// Shows the authority that connections to the domain reach us.
    async fn prove(&self, order: &mut Order, resolver: &CertificateResolver) -> anyhow::Result<()> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let challenge = authorization.challenge(ChallengeType::TlsAlpn01);
            let mut challenge = challenge.context("the authority does not offer tls-alpn-01")?;
            let digest = challenge.key_authorization().digest();
            let shown = challenge_certificate(&self.settings.domain, digest.as_ref())?;
            resolver.set_challenge(Some(shown));
            challenge.set_ready().await?;
        }
        Ok(())
    }

    async fn account(&self) -> anyhow::Result<Account> {
        let path = &self.account_file;
        let kept = private_file::read(path).await;
        let kept = kept.with_context(|| format!("reading {}", path.display()))?;
        if let Some(kept) = kept {
            let kept: StoredAccount = serde_json::from_slice(&kept)
                .with_context(|| format!("the account in {}", path.display()))?;
            let account = self.builder()?.from_credentials(kept.credentials).await;
            return account.context("using the account at the authority");
        }
        let contact = self
            .settings
            .email
            .as_ref()
            .map(|it| format!("mailto:{it}"));
        let contact: Vec<_> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.settings.directory.clone();
        let created = self.builder()?.create(&new, directory.clone(), None).await;
        let (account, credentials) = created.context("making an account at the authority")?;
        let stored = StoredAccount {
            directory,
            credentials,
        };
        private_file::write(path, &serde_json::to_vec(&stored)?)
            .await
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(account)
    }

    fn builder(&self) -> anyhow::Result<AccountBuilder> {
        // Only the first call has an effect; all of our crates install the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        match &self.settings.root {
            Some(root) => Account::builder_with_root(root)
                .with_context(|| format!("reading the certificates in {}", root.display())),
            None => Account::builder().context("reading the certificates that this machine trusts"),
        }
    }
}

/// When a certificate is ordered.
struct OrderSchedule<'a> {
    domain: &'a str,
    /// Whether the one in use is trusted by nobody.
    is_missing: bool,
    /// The wait after the next failure.
    retry: Duration,
}

impl<'a> OrderSchedule<'a> {
    fn new(domain: &'a str, is_missing: bool) -> Self {
        Self {
            domain,
            is_missing,
            retry: FIRST_RETRY,
        }
    }

    /// Orders a certificate if one is due; returns how long to wait before the next look.
    async fn order_if_due(
        &mut self,
        resolver: &CertificateResolver,
        order: impl Future<Output = anyhow::Result<()>>,
    ) -> Duration {
        if !self.is_missing && !is_due(resolver) {
            return CHECK_INTERVAL;
        }
        let domain = self.domain;
        if let Err(error) = order.await {
            let wait = self.retry;
            tracing::error!(
                domain,
                seconds = wait.as_secs(),
                "could not get a certificate and will try again: {error:#}"
            );
            self.retry = (wait * 2).min(LONGEST_RETRY);
            return wait;
        }
        (self.retry, self.is_missing) = (FIRST_RETRY, false);
        if is_due(resolver) {
            let wait = DUE_ON_ARRIVAL_RETRY;
            tracing::error!(
                domain,
                seconds = wait.as_secs(),
                "the certificate that the authority sent is to be renewed already; this machine's clock may be wrong: set it and restart the server"
            );
            return wait;
        }
        tracing::info!(domain, "got a certificate");
        CHECK_INTERVAL
    }
}

/// Whether the certificate in use is to be renewed, or does not say when.
fn is_due(resolver: &CertificateResolver) -> bool {
    let renew_from = resolver.current().renew_from();
    renew_from.is_none_or(|from| from <= pvp_clock::now())
}

/// The certificate in a file; `None` if there is none that can be used.
async fn load(path: &Path) -> anyhow::Result<Option<Certificate>> {
    let kept = private_file::read(path).await;
    let kept = kept.with_context(|| format!("reading {}", path.display()))?;
    let certificate = kept.map(|pem| Certificate::from_pem(&pem, &pem));
    if let Some(Err(problem)) = &certificate {
        tracing::warn!(file = %path.display(), %problem, "the certificate that was kept is not used");
    }
    Ok(certificate.and_then(Result::ok))
}

/// Why an authority does not accept an order.
async fn rejection(order: &mut Order) -> String {
    let mut authorizations = order.authorizations();
    while let Some(Ok(authorization)) = authorizations.next().await {
        let problem = authorization
            .challenges
            .iter()
            .find_map(|it| it.error.as_ref());
        if let Some(problem) = problem {
            return format!("the authority could not check the domain: {problem}");
        }
    }
    "the authority did not accept the order".to_owned()
}

/// The certificate that an authority asks to see.
fn challenge_certificate(domain: &str, digest: &[u8]) -> anyhow::Result<Arc<CertifiedKey>> {
    if digest.len() != 32 {
        bail!("the challenge is not a SHA-256");
    }
    let key = KeyPair::generate().context("making a key for TLS")?;
    let mut params = CertificateParams::new(vec![domain.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key)?.der().clone();
    // Its extension is one that only an authority understands, so that it is not checked here.
    let signing_key = any_supported_type(&private_key(&key))?;
    let certified = CertifiedKey::new(vec![certificate], signing_key);
    Ok(Arc::new(certified))
}

fn private_key(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(key.serialize_der().into())
}

#[cfg(test)]
mod tests {
    use time::{Duration as Days, OffsetDateTime};

    use super::*;

    const DOMAIN: &str = "pvp.example.com";

    /// A certificate of ninety days, of which so many are left.
    fn certificate(days_left: i64) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![DOMAIN.to_owned()]).unwrap();
        params.not_after = OffsetDateTime::now_utc() + Days::days(days_left);
        params.not_before = params.not_after - Days::days(90);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Certificate::new(vec![certificate], private_key(&key)).unwrap()
    }

    /// Orders certificates of which so many days are left, as often as it is looked; returns the
    /// waits, and how many certificates were ordered.
    async fn orders(schedule: &mut OrderSchedule<'_>, days_left: &[i64]) -> (Vec<Duration>, usize) {
        let resolver = CertificateResolver::new(certificate(1));
        let (mut waits, mut ordered) = (Vec::new(), 0);
        for days_left in days_left {
            let order = async {
                ordered += 1;
                resolver.replace(certificate(*days_left));
                Ok(())
            };
            waits.push(schedule.order_if_due(&resolver, order).await);
        }
        (waits, ordered)
    }

    #[tokio::test]
    async fn a_certificate_is_ordered_once_and_then_looked_after() {
        let mut schedule = OrderSchedule::new(DOMAIN, true);
        let (waits, ordered) = orders(&mut schedule, &[90, 90, 90]).await;
        assert_eq!((waits, ordered), (vec![CHECK_INTERVAL; 3], 1));
    }

    #[tokio::test]
    async fn certificates_that_are_due_when_they_come_are_ordered_four_times_a_week_at_most() {
        // As it is if the clock of this machine is 70 days ahead, or further.
        for days_left in [20, -5] {
            let mut schedule = OrderSchedule::new(DOMAIN, false);
            let (waits, ordered) = orders(&mut schedule, &[days_left; 4]).await;
            assert_eq!((waits, ordered), (vec![DUE_ON_ARRIVAL_RETRY; 4], 4));
        }
        assert!(DUE_ON_ARRIVAL_RETRY * 4 > Duration::from_secs(7 * 86_400));
    }

    #[tokio::test]
    async fn the_wait_doubles_with_each_failure_until_an_order_succeeds() {
        let resolver = CertificateResolver::new(certificate(1));
        let mut schedule = OrderSchedule::new(DOMAIN, true);
        let mut waits = Vec::new();
        for _ in 0..9 {
            let order = async { bail!("refused") };
            waits.push(schedule.order_if_due(&resolver, order).await.as_secs());
        }
        let doubled = [300, 600, 1200, 2400, 4800, 9600, 19_200, 38_400, 43_200];
        assert_eq!(waits, doubled);
        orders(&mut schedule, &[90]).await;
        let order = async { bail!("refused") };
        assert_eq!(schedule.order_if_due(&resolver, order).await, FIRST_RETRY);
    }
}
