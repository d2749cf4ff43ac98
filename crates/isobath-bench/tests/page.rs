//! The page in a real browser, without a screen: it draws, its script runs, it asks the network for
//! nothing. On machines without a browser this test checks nothing.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use support::{str_of, succeed};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Run in the page: sorts by a click, then says in the title what it found.
const PROBE: &str = r##"<script>
  const rates = () => [...document.querySelectorAll("#rows tbody tr")].map((row) => +row.children[5].dataset.v);
  const rising = (list) => list.every((value, at) => at === 0 || list[at - 1] <= value);
  const heading = [...document.querySelectorAll("#rows th")].find((th) => th.textContent === "per second");
  heading.click();
  const once = rising(rates());
  heading.click();
  const twice = rising(rates().reverse());
  const figures = [...document.querySelectorAll("figure svg")];
  const drawn = figures.filter((svg) => svg.getBoundingClientRect().width > 500).length;
  const cut = figures.flatMap((svg) => {
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter((text) => {
      const at = text.getBoundingClientRect();
      return at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 1 || at.bottom > box.bottom + 1;
    });
    return texts.map((text) => text.textContent.trim());
  });
  const outside = performance.getEntriesByType("resource").length;
  document.title = `PROBE sorted=${once && twice} rows=${rates().length} drawn=${drawn} outside=${outside} cut=[${cut}]`;
</script></body>"##;

fn browse(page: &Path, profile: &Path) -> Option<String> {
    let browser = BROWSERS.iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    })?;
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,4000"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_page_draws_and_sorts_in_a_browser_and_needs_no_network() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    succeed(&[
        "suite",
        "smoke",
        "-e",
        "isobath,memory",
        "--scale",
        "0.0002",
        "--db",
        str_of(&db),
        "--out",
        str_of(&out),
    ]);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    let probed = out.join("probed.html");
    fs::write(&probed, page.replace("</body>", PROBE)).unwrap();
    let Some(seen) = browse(&probed, &dir.path().join("profile")) else {
        eprintln!("no browser here: the page was not looked at");
        return;
    };
    let title = seen.split("<title>").nth(1).and_then(|rest| rest.split('<').next());
    let found = title.unwrap_or_default();
    assert!(found.contains("sorted=true"), "{found}");
    assert!(found.contains("cut=[]"), "no text is cut off: {found}");
    assert!(found.contains("outside=0"), "{found}");
    let number = |name: &str| -> usize {
        let text = found.split(name).nth(1).and_then(|rest| rest.split(' ').next());
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    assert!(number("drawn=") >= 15, "{found}");
    assert!(number("rows=") >= 40, "{found}");
}
